//! The end by a signal, which is no [`Error`](super::Error): the process dies of it, and a shell sees
//! 128 and its number.

/// Whole, since a signal handler can't put a text together.
macro_rules! told {
    ($signal:literal) => {
        concat!(
            "pkcs11-external-signer: error: interrupted by ",
            $signal,
            "\nhelp: nothing was answered; run the command again\n"
        )
    };
}

/// What is told of SIGHUP, SIGINT and SIGTERM.
pub const INTERRUPTIONS: [&str; 3] = [told!("SIGHUP"), told!("SIGINT"), told!("SIGTERM")];
