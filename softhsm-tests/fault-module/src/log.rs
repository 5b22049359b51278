//! The record of calls: one line each, the function and what it returned, in the file that
//! `FAULT_MODULE_LOG` names. Arguments are not recorded: one of them is a PIN.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;

use cryptoki_sys::CK_RV;

/// Adds one line, `C_Login 0x0`, in one write: processes may share the file.
pub(crate) fn record(function: &str, returned: CK_RV) {
    let Some(path) = env::var_os("FAULT_MODULE_LOG") else {
        return;
    };
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(format!("{function} {returned:#x}\n").as_bytes()));
    if let Err(error) = written {
        // A test that reads the record must not mistake a missing line for a missing call.
        eprintln!("FAULT_MODULE_LOG: {error}");
        std::process::abort();
    }
}
