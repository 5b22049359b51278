//! How long each part of a connection may take, in the order in which they come. What a token takes is the keyring's to
//! limit.

use std::time::Duration;

/// A client's handshake. One that takes longer is no client's.
pub(super) const CLIENT_HANDSHAKE: Duration = Duration::from_secs(10);

/// A client that sends no more may still be waiting for a connection, so long.
pub(super) const CLIENT_GONE: Duration = Duration::from_secs(1);

/// Before a server is asked for its choice of protocol, so that the first request doesn't wait for what that costs the
/// server.
pub(super) const BEFORE_CHOICE: Duration = Duration::from_secs(1);

/// A server's acceptance of a connection: as long as kubectl gives it. The addresses of a name share it.
pub(super) const CONNECT: Duration = Duration::from_secs(30);

/// The same, with the name's lookup before and a proxy's answer behind it.
pub(super) const DIAL: Duration = Duration::from_secs(40);

/// A server that is silent for longer in a step holds up no other connection to it.
pub(super) const HOLDING_UP: Duration = Duration::from_secs(1);

/// A server's silence in a handshake: as long as kubectl gives it for the whole.
pub(super) const SERVER_SILENCE: Duration = Duration::from_secs(10);

/// After its handshake a connection may still bring a ticket, so long.
pub(super) const TICKET_DELAY: Duration = Duration::from_millis(200);

/// A connection that is no longer wanted is kept for its tickets, so long.
pub(super) const UNWANTED: Duration = Duration::from_secs(2);

/// The interval of TCP keepalive, by which a server that has vanished is noticed.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(30);

/// A certificate about to end may still be renewed: how often that is looked for, for the connections made with it.
pub(super) const LAST_RENEWAL: Duration = Duration::from_secs(10);

/// The same for one that has ended.
pub(super) const LATE_RENEWAL: Duration = Duration::from_secs(60);

/// A timer of hours stands still while the machine sleeps, and is set anew so often.
pub(super) const LONGEST_TIMER: Duration = Duration::from_secs(600);

/// A server's silence towards a client that has ended and sends no more: as long as API servers take for a request.
pub(super) const LAST_ANSWER: Duration = Duration::from_secs(60);

/// A connection on which nothing more is passed on waits so long for its sides to close it. What they send meanwhile
/// is discarded: a socket that is closed with bytes unread loses what it has not delivered.
pub(super) const LINGER: Duration = Duration::from_secs(5);

/// A client that is told why it has no connection may take so long to ask and to read the answer.
pub(super) const TOLD: Duration = Duration::from_secs(10);

/// The same, to send the body of its request.
pub(super) const TOLD_BODY: Duration = Duration::from_secs(5);

/// A server's answer to a request of our own, once there is a connection.
pub(super) const OWN_ANSWER: Duration = Duration::from_secs(30);

/// The end of a connection on which a request of our own has failed.
pub(super) const OWN_END: Duration = Duration::from_secs(1);
