//! How long everything may take. All limits are in one place because they depend on each other: whoever waits for something
//! has to wait longer than that may take. These inequalities are at the end of the file, and the compiler checks them.

use std::time::Duration;

const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

const fn milliseconds(number: u64) -> Duration {
    Duration::from_millis(number)
}

// A person.

/// For one answer of a person: a PIN, or a yes.
pub const ANSWER: Duration = seconds(60);

/// For all answers that are needed until there is a PIN, however often a person types, and including prompts of others that
/// come before.
pub const PERSON: Duration = seconds(180);

/// How long a person who has left a prompt isn't asked again by the same job of the shell.
pub const LEFT_PROMPT: Duration = seconds(90);

/// How long a failed command waits for another command's prompt before it writes to the terminal.
pub const OTHER_PROMPT: Duration = seconds(5);

/// For reading a line with a PIN from standard input.
pub const PIN_LINE: Duration = seconds(60);

/// If a signature takes longer than this, it is probably waiting for a touch, and a notice says so.
pub const TOUCH_NOTICE: Duration = milliseconds(300);

/// If making a key takes longer than this, a notice says so: otherwise nothing would seem to happen.
pub const GENERATION_NOTICE: Duration = seconds(2);

/// How long an error that kubectl or another client was told isn't told to it in full again.
pub const TOLD: Duration = seconds(90);

/// The pause between two warnings that a key's PIN is in the kubeconfig: a client has many signatures made.
pub const STORED_PIN_NOTICE: Duration = seconds(24 * 60 * 60);

// A PKCS#11 library and its lock.

/// For a call of most PKCS#11 functions. A token that waits for a touch gives up long before.
pub const CALL: Limit = Limit { seconds: 60, text: "60 s" };

/// For C_GenerateKeyPair, which takes minutes for RSA on some cards.
pub const GENERATION: Limit = Limit { seconds: 300, text: "300 s" };

/// How long a call of a library may take.
#[derive(Clone, Copy)]
pub struct Limit {
    pub seconds: u32,
    /// The limit in words.
    pub text: &'static str,
}

/// For C_Finalize at the end of the process, in seconds.
pub const FINALIZE: u32 = 2;

/// For a login that goes on after a signal, in seconds. A login in which the user has nothing to do is faster.
pub const LOGIN_AFTER_SIGNAL: u32 = 2;

/// For writing files that goes on after a signal, in seconds. The files are small, so that even a busy disk is faster.
pub const FILES_AFTER_SIGNAL: u32 = 10;

/// For a library that goes on writing to a token after a signal, in seconds: as long as a token may take to make a key.
pub const WRITING_AFTER_SIGNAL: u32 = GENERATION.seconds;

/// How long to wait for another process that holds a lock. It is longer than a question may stay unanswered, such as
/// whether something is to be replaced. (While a person is asked for a PIN, the lock on the library is free.)
pub const LOCK: Duration = seconds(90);

/// If the wait for a lock takes longer than this, it is reported: a person begins to wonder.
pub const LOCK_NOTICE: Duration = seconds(1);

/// How long to wait for the lock on the record of what clients were told. Others hold it for as long as it takes to write a
/// line.
pub const TOLD_LOCK: Duration = seconds(2);

/// How long to wait for kubectl's lock on a kubeconfig, which it holds for milliseconds.
pub const KUBECONFIG_LOCK: Duration = seconds(5);

// The keyring, which has a thread for each library.

/// For a token's reply while a TLS client waits. A person may have to touch the token.
pub const REPLY: Duration = seconds(60);

/// For the end of a library's thread, which finalises the library. A thread that still waits for a token is left behind.
pub const LIBRARY_END: Duration = seconds(2);

// The tunnel process, its token processes and its clients.

/// For a tunnel process's first message to a client. A process that is stopped (SIGSTOP) never sends it.
pub const FIRST_WORD: Duration = seconds(10);

/// For a tunnel process's answer to a client that may be asked for a PIN. Before that, another client may be asked three
/// times for the PIN of the same key, and another process may use the library.
pub const OPENING: Duration = PERSON.saturating_mul(4);

/// For any other answer of a tunnel process, and for its end.
pub const PROCESS: Duration = seconds(10);

/// For a client's request, once it is connected.
pub const CLIENT_REQUEST: Duration = seconds(90);

/// For a client's answer when it is asked for a PIN.
pub const CLIENT_PIN: Duration = PERSON.saturating_add(seconds(10));

/// For a token process's answer to a task for which its keyring has a limit. A process that is stopped (SIGSTOP) never
/// gives it.
pub const TOKEN_PROCESS: Duration = REPLY.saturating_add(seconds(5));

/// For the end of a token process, which finalises its library.
pub const TOKEN_PROCESS_END: Duration = seconds(3);

/// How long a key stays open for a client that can't be watched, because a program that has ended since, such as a script
/// around the plugin, has handed it the credential. Clients connect at once.
pub const FIRST_USE: Duration = seconds(15);

// Commands.

/// For everything that `list` asks a library, if no PIN is asked for.
pub const LISTING: Duration = seconds(20);

/// For everything that `list` asks a library, if a person may have to type PINs.
pub const ATTENDED_LISTING: Duration = seconds(300);

/// How long `list` waits for another process that uses a library. After that it names the process, before the library
/// itself would seem to hang.
pub const LISTING_LOCK: Duration = seconds(10);

/// For a policy's verifier to judge an attestation: a few calls of openssl, say.
pub const VERIFIER: Duration = seconds(10);

/// For `kubelet-credential-provider` as a whole: kubelet kills a provider after a minute.
pub const PROVIDER: Duration = seconds(45);

/// How long a provider waits for those for other images, which use the same library.
pub const PROVIDER_LOCK: Duration = seconds(40);

/// The limits of a connection, in the order of its parts. The time that a token takes is limited by the keyring.
pub mod tunnel {
    use std::time::Duration;

    use super::{milliseconds, seconds};

    /// For a client's handshake. Whatever takes longer is no client.
    pub const CLIENT_HANDSHAKE: Duration = seconds(10);

    /// How long a client that has ended its side is still taken to wait for a connection.
    pub const CLIENT_GONE: Duration = seconds(1);

    /// The pause before a server is asked which protocol it chooses, so that the first request doesn't have to wait behind
    /// that.
    pub const BEFORE_CHOICE: Duration = seconds(1);

    /// For a server to accept a connection: as long as kubectl waits. All addresses of a name share it.
    pub const CONNECT: Duration = seconds(30);

    /// For a connection to a server, including the lookup of its name and the answer of a proxy.
    pub const DIAL: Duration = seconds(40);

    /// If a server is silent for longer than this in one step, other connections to it don't wait for that any more.
    pub const HOLDING_UP: Duration = seconds(1);

    /// How long a server may be silent in a handshake: as long as kubectl waits for the whole handshake.
    pub const SERVER_SILENCE: Duration = seconds(10);

    /// How long after its handshake a connection may still bring a ticket.
    pub const TICKET_DELAY: Duration = milliseconds(200);

    /// How long a connection that nobody wants any more is kept for its tickets.
    pub const UNWANTED: Duration = seconds(2);

    /// The interval of TCP keepalive, by which a server that has vanished is noticed.
    pub const KEEPALIVE: Duration = seconds(30);

    /// How often a renewed certificate is looked for, for the connections made with one that is about to expire.
    pub const LAST_RENEWAL: Duration = seconds(10);

    /// How often a renewed certificate is looked for once the old one has expired.
    pub const LATE_RENEWAL: Duration = seconds(60);

    /// After how long a longer timer is set anew: timers stand still while the machine sleeps.
    pub const LONGEST_TIMER: Duration = seconds(600);

    /// How long a server may be silent towards a client that has ended its side: as long as API servers may take for a
    /// request.
    pub const LAST_ANSWER: Duration = seconds(60);

    /// How long a connection on which nothing more is passed on waits for its sides to close it. What they send in that
    /// time is read and discarded, because a socket that is closed with unread bytes loses what it has not delivered.
    pub const LINGER: Duration = seconds(5);

    /// How long a client that is told why it has no connection may take to send a request and to read the answer.
    pub const REASON: Duration = seconds(10);

    /// How long such a client may take to send the body of its request.
    pub const REASON_BODY: Duration = seconds(5);

    /// For a server's answer to a request of this program itself, once there is a connection.
    pub const OWN_ANSWER: Duration = seconds(30);

    /// For the end of a connection on which such a request has failed.
    pub const OWN_END: Duration = seconds(1);

    /// For the end of the tunnel's threads.
    pub const END: Duration = milliseconds(500);
}

/// The limits of a signer of service account tokens.
pub mod service_account {
    use std::time::Duration;

    use super::{milliseconds, seconds};

    /// For a token, from the API server's request on: less than the minute that API servers give to a request.
    pub const TOKEN: Duration = seconds(55);

    /// How long before the API server's own limit a request is answered, so that the error arrives.
    pub const BEFORE_DEADLINE: Duration = milliseconds(500);

    /// For a signature of the token, once it was asked. A library that takes longer hangs, and its process is ended.
    pub const SIGNATURE: Duration = seconds(60);

    /// For the end of a library's process that has closed its socket: its status says why.
    pub const STATUS_OF_ENDED: Duration = milliseconds(500);

    /// For opening the keys. A library's process gives up by itself before.
    pub const OPENING: Duration = seconds(170);

    /// The pauses before keys that could not be opened are tried again: the first one, and the longest.
    pub const FIRST_PAUSE: Duration = milliseconds(500);
    pub const LONGEST_PAUSE: Duration = seconds(10);

    /// How long a signer that is ended goes on with the requests that it has.
    pub const LAST_REQUESTS: Duration = seconds(60);

    /// For a connection to say which version of HTTP it speaks, and for a request's headers.
    pub const HEADERS: Duration = seconds(10);

    /// How often the client of a connection is asked whether it is still there.
    pub const KEEP_ALIVE: Duration = seconds(60);

    /// For a request as a whole, from its headers on: more than for a token, and less than API servers wait.
    pub const REQUEST: Duration = seconds(58);

    /// How often a signer looks whether another key signs by now, and writes down what has changed.
    pub const LOOK: Duration = milliseconds(500);

    /// For a signer's answer when it is asked for its status.
    pub const STATUS: Duration = seconds(10);
}

const fn is_less(less: Duration, more: Duration) -> bool {
    less.as_millis() < more.as_millis()
}

const fn is_at_most(less: Duration, more: Duration) -> bool {
    less.as_millis() <= more.as_millis()
}

// A person can type a PIN three times. Each who waits for that has to wait longer than the one before.
const _: () = assert!(is_at_most(ANSWER.saturating_mul(3), PERSON));
const _: () = assert!(is_less(PERSON, CLIENT_PIN));
const _: () = assert!(is_less(CLIENT_PIN.saturating_mul(3), OPENING));
const _: () = assert!(is_less(PERSON, ATTENDED_LISTING));
// A question is answered before others give up the lock, and is not repeated at once by the job that left it.
const _: () = assert!(is_less(ANSWER, LOCK));
const _: () = assert!(is_less(ANSWER, LEFT_PROMPT));
// The process that hangs in a call ends before those are told who wait for it.
const _: () = assert!(is_less(seconds(CALL.seconds as u64), LOCK));
const _: () = assert!(is_at_most(seconds(CALL.seconds as u64), REPLY));
const _: () = assert!(is_less(REPLY, TOKEN_PROCESS));
// What is to be finalised has the time for it.
const _: () = assert!(is_at_most(seconds(FINALIZE as u64), LIBRARY_END));
const _: () = assert!(is_less(LIBRARY_END, TOKEN_PROCESS_END));
const _: () = assert!(is_less(TOKEN_PROCESS_END, PROCESS));
// Who holds a lock is named before the one that waits for it is given up.
const _: () = assert!(is_less(LOCK_NOTICE, TOLD_LOCK));
const _: () = assert!(is_less(LISTING_LOCK, LISTING));
const _: () = assert!(is_less(PROVIDER_LOCK, PROVIDER));
const _: () = assert!(is_less(PROVIDER, seconds(60)));
// A part takes less than the whole.
const _: () = assert!(is_less(tunnel::CONNECT, tunnel::DIAL));
const _: () = assert!(is_less(tunnel::HOLDING_UP, tunnel::SERVER_SILENCE));
const _: () = assert!(is_less(tunnel::REASON_BODY, tunnel::REASON));
const _: () = assert!(is_less(tunnel::LAST_RENEWAL, tunnel::LATE_RENEWAL));
// A signer answers before the API server gives a request up, and ends a library that hangs after it.
const _: () = assert!(is_less(service_account::TOKEN, seconds(60)));
const _: () = assert!(is_less(service_account::TOKEN, service_account::REQUEST));
const _: () = assert!(is_less(service_account::REQUEST, seconds(60)));
const _: () = assert!(is_less(service_account::TOKEN, service_account::SIGNATURE));
const _: () = assert!(is_less(service_account::TOKEN, service_account::LAST_REQUESTS));
const _: () = assert!(is_less(LOCK, service_account::OPENING));
