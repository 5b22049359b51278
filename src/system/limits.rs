//! How long everything may take, in one place, since the limits depend on each other: who waits for another waits longer
//! than that one may take. The inequalities stand at the end, and the compiler checks them.

use std::time::Duration;

const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

const fn milliseconds(number: u64) -> Duration {
    Duration::from_millis(number)
}

// A person.

/// One answer of a person: a PIN, or a yes.
pub const ANSWER: Duration = seconds(60);

/// All answers of a person that are needed for a PIN, however often they type and whoever is asked before them.
pub const PERSON: Duration = seconds(180);

/// A person who has left a prompt is not asked by the same job of the shell again for this time.
pub const LEFT_PROMPT: Duration = seconds(90);

/// A failed command waits so long for another one's prompt before it writes to the terminal.
pub const OTHER_PROMPT: Duration = seconds(5);

/// A line of standard input with a PIN in it.
pub const PIN_LINE: Duration = seconds(60);

/// A signature that takes longer is probably waiting for a touch, which is said then.
pub const TOUCH_NOTICE: Duration = milliseconds(300);

/// A key that is being made for longer is announced: nothing else seems to happen.
pub const GENERATION_NOTICE: Duration = seconds(2);

/// What kubectl and other clients were told about a tunnel that failed is not repeated in full for this time.
pub const TOLD: Duration = seconds(90);

/// Between two warnings that the PIN of a key stands in the kubeconfig: a client makes many signatures.
pub const STORED_PIN_NOTICE: Duration = seconds(24 * 60 * 60);

// A PKCS#11 library and its lock.

/// Most calls of a PKCS#11 function. A token that waits for a touch gives up long before.
pub const CALL: Limit = Limit { seconds: 60, text: "60 s" };

/// C_GenerateKeyPair, which takes minutes for RSA on some cards.
pub const GENERATION: Limit = Limit { seconds: 300, text: "300 s" };

/// How long a call of a library may take.
#[derive(Clone, Copy)]
pub struct Limit {
    pub seconds: u32,
    /// The same for people.
    pub text: &'static str,
}

/// C_Finalize at the end of the process, in seconds.
pub const FINALIZE: u32 = 2;

/// A login that goes on after a signal, in seconds. One that needs no action of the user is faster.
pub const LOGIN_AFTER_SIGNAL: u32 = 2;

/// The writing of files that goes on after a signal, in seconds. Even a busy disk is faster with small ones.
pub const FILES_AFTER_SIGNAL: u32 = 10;

/// What a library writes to a token after a signal, in seconds: as long as a token may take to make a key.
pub const WRITING_AFTER_SIGNAL: u32 = GENERATION.seconds;

/// Another process that holds a lock: longer than a question may stay unanswered, such as whether something is to be
/// replaced. While a person is asked for a PIN nobody has a library's.
pub const LOCK: Duration = seconds(90);

/// A longer wait for a lock is reported: a person begins to wonder.
pub const LOCK_NOTICE: Duration = seconds(1);

/// The lock of the record of what was told, which others have for as long as it takes to write a line.
pub const TOLD_LOCK: Duration = seconds(2);

/// kubectl's lock on a kubeconfig, which it has for milliseconds.
pub const KUBECONFIG_LOCK: Duration = seconds(5);

// The keyring, which has a thread for each library.

/// A token's reply while a client waits; a person may have to touch it.
pub const REPLY: Duration = seconds(60);

/// The end of a library's thread, in which it finalises the library; one that waits for a token is left behind.
pub const LIBRARY_END: Duration = seconds(2);

// The tunnel process, its token processes and its clients.

/// A tunnel process's first word to a client: one that was stopped never says it.
pub const FIRST_WORD: Duration = seconds(10);

/// A tunnel process's answer to a client for whom somebody may be asked for a PIN: another client may be asked three
/// times for that of the same key, and another process may use the library.
pub const OPENING: Duration = PERSON.saturating_mul(4);

/// Any other answer of a tunnel process, and its end.
pub const PROCESS: Duration = seconds(10);

/// A client's request, once it is connected.
pub const CLIENT_REQUEST: Duration = seconds(90);

/// A client's answer to the question for a PIN.
pub const CLIENT_PIN: Duration = PERSON.saturating_add(seconds(10));

/// A token process's answer for which the keyring in it has a limit: one that was stopped never gives it.
pub const TOKEN_PROCESS: Duration = REPLY.saturating_add(seconds(5));

/// The end of a token process, in which its library is finalised.
pub const TOKEN_PROCESS_END: Duration = seconds(3);

/// A key stays open so long for a client that can't be watched: it was handed the credential by a program that has
/// ended since, such as a script around the plugin. Clients connect at once.
pub const FIRST_USE: Duration = seconds(15);

// Commands.

/// What `list` asks a library if no PIN is asked for.
pub const LISTING: Duration = seconds(20);

/// What `list` asks a library if a person may have to type PINs.
pub const ATTENDED_LISTING: Duration = seconds(300);

/// Another process's use of a library that `list` asks: it is named, before this one is taken for one that hangs.
pub const LISTING_LOCK: Duration = seconds(10);

/// A policy's verifier judges an attestation: a few calls of openssl, say.
pub const VERIFIER: Duration = seconds(10);

/// `kubelet-credential-provider` as a whole. kubelet kills a provider after a minute.
pub const PROVIDER: Duration = seconds(45);

/// The use of the library by the providers for other images.
pub const PROVIDER_LOCK: Duration = seconds(40);

/// A connection, in the order in which its parts come. What a token takes is the keyring's to limit.
pub mod tunnel {
    use std::time::Duration;

    use super::{milliseconds, seconds};

    /// A client's handshake. One that takes longer is no client's.
    pub const CLIENT_HANDSHAKE: Duration = seconds(10);

    /// A client that sends no more may still be waiting for a connection, so long.
    pub const CLIENT_GONE: Duration = seconds(1);

    /// Before a server is asked for its choice of protocol, so that the first request doesn't wait for what that costs the
    /// server.
    pub const BEFORE_CHOICE: Duration = seconds(1);

    /// A server's acceptance of a connection: as long as kubectl gives it. The addresses of a name share it.
    pub const CONNECT: Duration = seconds(30);

    /// A connection to a server, with the name's lookup before and a proxy's answer behind its acceptance.
    pub const DIAL: Duration = seconds(40);

    /// A server that is silent for longer in a step holds up no other connection to it.
    pub const HOLDING_UP: Duration = seconds(1);

    /// A server's silence in a handshake: as long as kubectl gives it for the whole.
    pub const SERVER_SILENCE: Duration = seconds(10);

    /// After its handshake a connection may still bring a ticket, so long.
    pub const TICKET_DELAY: Duration = milliseconds(200);

    /// A connection that is no longer wanted is kept for its tickets, so long.
    pub const UNWANTED: Duration = seconds(2);

    /// The interval of TCP keepalive, by which a server that has vanished is noticed.
    pub const KEEPALIVE: Duration = seconds(30);

    /// A certificate about to end may still be renewed: how often that is looked for, for the connections made with it.
    pub const LAST_RENEWAL: Duration = seconds(10);

    /// How often a renewed certificate is looked for once the old one has ended.
    pub const LATE_RENEWAL: Duration = seconds(60);

    /// A timer of hours stands still while the machine sleeps, and is set anew so often.
    pub const LONGEST_TIMER: Duration = seconds(600);

    /// A server's silence towards a client that has ended and sends no more: as long as API servers take for a request.
    pub const LAST_ANSWER: Duration = seconds(60);

    /// A connection on which nothing more is passed on waits so long for its sides to close it. What they send meanwhile
    /// is discarded: a socket that is closed with bytes unread loses what it has not delivered.
    pub const LINGER: Duration = seconds(5);

    /// A client that is told why it has no connection may take so long to ask and to read the answer.
    pub const TOLD: Duration = seconds(10);

    /// A client that is told why it has no connection may take so long to send the body of its request.
    pub const TOLD_BODY: Duration = seconds(5);

    /// A server's answer to a request of our own, once there is a connection.
    pub const OWN_ANSWER: Duration = seconds(30);

    /// The end of a connection on which a request of our own has failed.
    pub const OWN_END: Duration = seconds(1);

    /// The end of the tunnel's threads.
    pub const END: Duration = milliseconds(500);
}

const fn is_less(less: Duration, more: Duration) -> bool {
    less.as_millis() < more.as_millis()
}

const fn is_at_most(less: Duration, more: Duration) -> bool {
    less.as_millis() <= more.as_millis()
}

// A person can type a PIN three times. Whoever waits for that waits longer, each around the one before.
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
const _: () = assert!(is_less(tunnel::TOLD_BODY, tunnel::TOLD));
const _: () = assert!(is_less(tunnel::LAST_RENEWAL, tunnel::LATE_RENEWAL));
