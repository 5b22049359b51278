//! The identity by which this user's clients know the tunnel process. It is kept in a file that `kubeconfig --write` makes.

use super::message::foreign_entry;
use files::data_file;
use kubeconfig::{local_address, write_command};
use messages::error::{Error, Exit};
use messages::help::Help;
use tunnel::ServerIdentity;

const FILE: &str = "tunnel.pem";

pub fn identity() -> Result<ServerIdentity, Error> {
    let missing = "this user has no tunnel.pem, by which clients know the tunnel";
    read()?.ok_or_else(|| foreign_entry(missing))
}

fn read() -> Result<Option<ServerIdentity>, Error> {
    // A file that another user could have made is refused: that user would be taken for the tunnel.
    let not_read = |reason: String| {
        let help = Help::from(
            "make sure that the file and its directory are yours alone (modes 0600 and 0700); if in doubt, remove the \
             file and have the contexts written again: ",
        );
        Error::new(Exit::Cluster, format!("the tunnel's own key can't be used: {reason}"))
            .help(help.and(write_command()))
    };
    let Some(content) = data_file::read(FILE).map_err(not_read)? else { return Ok(None) };
    let path = data_file::path(FILE).unwrap_or_default();
    let identity = ServerIdentity::from_pem(String::from_utf8_lossy(&content).into_owned());
    identity.map(Some).map_err(|reason| not_read(format!("{}: {reason}", path.display())))
}

/// This user's identity, which is made if there is none yet.
pub fn identity_or_new() -> Result<ServerIdentity, Error> {
    if let Some(identity) = read()? {
        return Ok(identity);
    }
    let new = ServerIdentity::generate(&[local_address().into()])?;
    let kept = data_file::create(FILE, new.to_pem().as_bytes());
    kept.map_err(|reason| {
        Error::new(Exit::Cluster, format!("the tunnel's own key can't be kept: {reason}")).help(
            "make sure that your home can be written, that its disk is not full, and that this directory is yours alone \
             (mode 0700)",
        )
    })?;
    // Another process may have been faster: then its identity is the one.
    Ok(read()?.unwrap_or(new))
}
