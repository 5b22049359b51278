//! Copies bytes both ways between two streams, with half-close and back-pressure. What the bytes mean matters only for one
//! thing: whether an answer switches to another protocol.
//!
//! An idle connection holds no buffer, since a run may have hundreds of them. If one direction has ended, the other one
//! goes on to its own end: a server may have answered before it stopped reading.

use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep, timeout};

use super::limits::{LAST_ANSWER, LINGER};
use system::locked;

/// How many bytes are sent at once to a client on this machine: with what TLS adds, they fit into one TCP segment there.
pub(super) const SEGMENT: usize = 65_000;

/// The length of a buffer in bytes: that of several TLS records.
pub(super) const BUFFER_SIZE: usize = 2 * SEGMENT;

/// How many bytes of what the first stream sends are kept until the other one says something.
const KEPT: usize = 1 << 20;

/// How an answer begins by which the server lets the client speak another protocol (RFC 9110, section 15.2.2).
const SWITCHING: &[u8] = b"HTTP/1.1 101";

/// The free buffers. The one thread that copies needs two; threads that wait for a token need none.
static FREE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// A buffer of [`BUFFER_SIZE`] bytes.
pub(super) fn take() -> Vec<u8> {
    locked(&FREE).pop().unwrap_or_else(|| vec![0; BUFFER_SIZE])
}

/// Takes back a buffer that is needed no longer.
pub(super) fn give_back(buffer: Vec<u8>) {
    let mut free = locked(&FREE);
    if free.len() < 2 && buffer.len() == BUFFER_SIZE {
        free.push(buffer);
    }
}

/// One of the two streams.
pub(super) trait Side: AsyncRead + AsyncWrite + Unpin {
    /// Ends what is sent in such a way that the other side sees that the connection broke off. After a shutdown it would
    /// believe that it has received everything.
    fn poll_break_off(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// How the other stream has failed, if it has.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) reading: Option<io::Error>,
    pub(super) writing: Option<io::Error>,
    /// What the stream was sent, if it has failed before it said anything. Then the first stream is still open, and can be
    /// given an answer.
    pub(super) unanswered: Option<Vec<u8>>,
}

/// Copies between the first stream, a client, and the other one, its server, until both directions have ended, and returns how
/// the server's stream has failed.
///
/// The end of one side is passed on to the other, which may go on sending, even if it takes no more itself. Once the client
/// has ended, a silent server is an end, too. So is what `is_superseded` waits for, which is that the connection is no longer
/// good for another request; it counts no more once the server has switched to another protocol, as for exec: such a
/// connection brings no other request.
pub(super) async fn relay<A: Side, B: Side>(
    one: &mut A,
    other: &mut B,
    mut is_superseded: impl Future<Output = ()> + Unpin,
) -> Broken {
    let mut both = Directions::new();
    let mut last_answer: Option<Pin<Box<Sleep>>> = None;
    let end = poll_fn(|context| {
        both.poll(context, one, other);
        if both.is_unanswered() {
            return Poll::Ready(End::Unanswered);
        }
        let Directions { to_other, to_one } = &mut both;
        if !to_one.has_switched() && Pin::new(&mut is_superseded).poll(context).is_ready() {
            return Poll::Ready(End::Superseded);
        }
        if to_other.is_over && !to_one.is_over {
            if mem::take(&mut to_one.has_read) {
                last_answer = None;
            }
            let waiting = last_answer.get_or_insert_with(|| Box::pin(sleep(LAST_ANSWER)));
            return waiting.as_mut().poll(context).map(|()| End::Over);
        }
        ready_if(to_other.is_over && to_one.is_over, End::Over)
    })
    .await;
    let mut unanswered = None;
    match end {
        End::Unanswered => unanswered = both.to_other.kept.take(),
        End::Superseded => {}
        End::Over => {
            let closed = poll_fn(|context| both.poll_closed(context, one, other));
            let _ = timeout(LINGER, closed).await;
        }
    }
    let Directions { to_other, to_one } = both;
    Broken { reading: to_one.read_error, writing: to_other.write_error, unanswered }
}

/// Why nothing more is passed on.
enum End {
    /// Both directions have ended, or the first stream has and the other one is silent.
    Over,
    /// The other stream has failed before it said anything.
    Unanswered,
    /// The connection is superseded.
    Superseded,
}

/// Both directions of a connection between two streams.
struct Directions {
    /// From the first stream to the other one.
    to_other: Direction,
    /// From the other stream to the first one.
    to_one: Direction,
}

impl Directions {
    fn new() -> Self {
        let to_other = Direction { kept: Some(Vec::new()), ..Direction::default() };
        Self { to_other, to_one: Direction::default() }
    }

    /// Passes on what there is, until neither direction ends any more by that. What the first stream sends is kept until
    /// the other one says something.
    fn poll<A: Side, B: Side>(&mut self, context: &mut Context<'_>, one: &mut A, other: &mut B) {
        let Self { to_other, to_one } = self;
        loop {
            let before = (to_other.is_over, to_one.is_over);
            to_other.poll(context, Pin::new(one), Pin::new(other));
            if mem::take(&mut to_other.has_read) {
                to_one.answer.request_sent();
            }
            to_one.spares = to_other.kept.is_some() && !to_other.has_ended;
            to_one.poll(context, Pin::new(other), Pin::new(one));
            if to_one.has_begun {
                to_other.kept = None;
            }
            // Nothing more is sent to a side that can't be read.
            to_one.is_over |= to_other.read_error.is_some();
            to_other.is_over |= to_one.read_error.is_some();
            if is_unanswered(to_other, to_one) || before == (to_other.is_over, to_one.is_over) {
                return;
            }
        }
    }

    fn is_unanswered(&self) -> bool {
        is_unanswered(&self.to_other, &self.to_one)
    }

    /// Discards what comes, until both streams have ended.
    fn poll_closed<A: Side, B: Side>(
        &mut self,
        context: &mut Context<'_>,
        one: &mut A,
        other: &mut B,
    ) -> Poll<()> {
        self.to_other.discard(context, Pin::new(one));
        self.to_one.discard(context, Pin::new(other));
        ready_if(self.to_other.has_ended && self.to_one.has_ended, ())
    }
}

/// Whether the other stream has failed before it said anything.
fn is_unanswered(to_other: &Direction, to_one: &Direction) -> bool {
    to_one.spares && to_one.read_error.is_some() && to_other.kept.is_some()
}

fn ready_if<T>(is_so: bool, value: T) -> Poll<T> {
    if is_so { Poll::Ready(value) } else { Poll::Pending }
}

/// One direction of a connection.
#[derive(Default)]
struct Direction {
    /// Whether anything was read.
    has_begun: bool,
    /// Whether anything was read since this was last reset.
    has_read: bool,
    /// How the answer begins that was read last. It is looked at in the direction from the server to the client.
    answer: AnswerStart,
    /// What was read, and what the other side has not taken yet.
    waiting: Vec<u8>,
    /// Whether something was written that may still be in the other side's buffer.
    is_unflushed: bool,
    /// Everything that was read, as long as it may be needed to give the client an answer.
    kept: Option<Vec<u8>>,
    /// Whether a failure before anything was read is not passed on to the other side.
    spares: bool,
    /// Whether there is no more to read.
    has_ended: bool,
    /// Whether nothing more is passed on. What still comes is discarded.
    is_over: bool,
    read_error: Option<io::Error>,
    write_error: Option<io::Error>,
}

/// What is known of the beginning of a server's answer, of which a connection may bring many. One begins with the first bytes
/// after a request: HTTP/1.1 clients send the next request when they have the whole answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum AnswerStart {
    /// So many bytes are those of [`SWITCHING`], and the others are still to come.
    Begun(usize),
    /// It is an ordinary answer.
    Ordinary,
    /// The server has switched to another protocol, for good.
    Switched,
}

impl Default for AnswerStart {
    fn default() -> Self {
        Self::Begun(0)
    }
}

impl AnswerStart {
    /// The client has sent something: what the server says next may be another answer.
    fn request_sent(&mut self) {
        if *self == Self::Ordinary {
            *self = Self::Begun(0);
        }
    }

    /// The server has sent these bytes.
    fn read(&mut self, bytes: &[u8]) {
        let Self::Begun(known) = *self else { return };
        let expected = SWITCHING.get(known..).unwrap_or_default();
        let compared = expected.len().min(bytes.len());
        if bytes.get(..compared) != expected.get(..compared) {
            *self = Self::Ordinary;
        } else if compared == expected.len() {
            *self = Self::Switched;
        } else {
            *self = Self::Begun(known + compared);
        }
    }
}

impl Direction {
    /// Whether the server has switched to another protocol.
    fn has_switched(&self) -> bool {
        self.answer == AnswerStart::Switched
    }

    /// Passes on what there is.
    fn poll<A: AsyncRead, B: Side>(
        &mut self,
        context: &mut Context<'_>,
        mut from: Pin<&mut A>,
        to: Pin<&mut B>,
    ) {
        if !self.is_over {
            let Poll::Ready(outcome) = self.poll_pass_on(context, from.as_mut(), to) else {
                return;
            };
            self.is_over = true;
            self.waiting = Vec::new();
            self.write_error = outcome.err();
        }
        self.discard(context, from);
    }

    /// Passes on what there is, until the end or a write that fails.
    fn poll_pass_on<A: AsyncRead, B: Side>(
        &mut self,
        context: &mut Context<'_>,
        mut from: Pin<&mut A>,
        mut to: Pin<&mut B>,
    ) -> Poll<io::Result<()>> {
        loop {
            if !self.waiting.is_empty() {
                let waiting = mem::take(&mut self.waiting);
                self.write(context, &waiting, to.as_mut())?;
                if !self.waiting.is_empty() {
                    return Poll::Pending;
                }
            }
            if self.has_ended {
                return self.poll_end(context, to);
            }
            let mut buffer = take();
            let mut read = ReadBuf::new(&mut buffer);
            self.read_error = self.read(context, &mut read, from.as_mut());
            let outcome = self.write(context, read.filled(), to.as_mut());
            let is_drained = read.remaining() > 0;
            give_back(buffer);
            outcome?;
            if is_drained && !self.has_ended {
                if self.is_unflushed && self.waiting.is_empty() {
                    ready!(to.as_mut().poll_flush(context))?;
                    self.is_unflushed = false;
                }
                return Poll::Pending;
            }
        }
    }

    /// Passes on that there is no more to read: as an ordinary end or, after a failure, as a connection that broke off.
    fn poll_end<B: Side>(
        &mut self,
        context: &mut Context<'_>,
        mut to: Pin<&mut B>,
    ) -> Poll<io::Result<()>> {
        if self.read_error.is_none() {
            return to.poll_shutdown(context);
        }
        if !self.spares || self.has_begun {
            ready!(to.as_mut().poll_flush(context))?;
            // The connection has failed already. That this fails as well is not worth reporting.
            let _ = ready!(to.poll_break_off(context));
        }
        Poll::Ready(Ok(()))
    }

    /// Reads until there is nothing left for now, or the buffer is full.
    fn read<A: AsyncRead>(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        mut from: Pin<&mut A>,
    ) -> Option<io::Error> {
        while buffer.remaining() > 0 && !self.has_ended {
            let before = buffer.filled().len();
            let outcome = from.as_mut().poll_read(context, buffer);
            let new = buffer.filled().get(before..).unwrap_or_default();
            self.keep(new);
            self.answer.read(new);
            match outcome {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => {
                    self.has_ended = true;
                    return Some(error);
                }
                Poll::Ready(Ok(())) if buffer.filled().len() == before => self.has_ended = true,
                Poll::Ready(Ok(())) => {
                    self.has_begun = true;
                    self.has_read = true;
                }
            }
        }
        None
    }

    /// Keeps what was read, if that is still kept at all. Once it would be too much, nothing is kept any more.
    fn keep(&mut self, new: &[u8]) {
        let Some(kept) = &mut self.kept else { return };
        if kept.len() + new.len() > KEPT {
            self.kept = None;
        } else {
            kept.extend(new);
        }
    }

    /// Writes as much as the other side takes at once. The rest is left in `waiting`.
    fn write<B: AsyncWrite>(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        mut to: Pin<&mut B>,
    ) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match to.as_mut().poll_write(context, rest)? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(count) => {
                    rest = rest.get(count..).unwrap_or_default();
                    self.is_unflushed = true;
                }
                Poll::Pending => {
                    self.waiting = rest.to_owned();
                    break;
                }
            }
        }
        Ok(())
    }

    /// Discards what comes.
    fn discard<A: AsyncRead>(&mut self, context: &mut Context<'_>, mut from: Pin<&mut A>) {
        let mut buffer = take();
        let mut is_drained = false;
        while !is_drained {
            let mut read = ReadBuf::new(&mut buffer);
            let _ = self.read(context, &mut read, from.as_mut());
            is_drained = read.remaining() > 0;
        }
        give_back(buffer);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::{Arc, Mutex};

    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::runtime::Builder;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;

    fn run<T>(test: impl Future<Output = T>) -> T {
        Builder::new_current_thread().enable_time().build().unwrap().block_on(test)
    }

    fn spawned<A: Side + Send + 'static, B: Side + Send + 'static>(
        mut one: A,
        mut other: B,
    ) -> JoinHandle<Broken> {
        tokio::spawn(async move { relay(&mut one, &mut other, pending()).await })
    }

    fn has_failed(broken: &Broken) -> bool {
        broken.reading.is_some() || broken.writing.is_some()
    }

    #[test]
    fn the_end_of_one_side_leaves_the_other_open() {
        run(async {
            let (mut command, one) = duplex(1000);
            let (mut server, other) = duplex(1000);
            let relay = spawned(one, other);
            command.write_all(b"request").await.unwrap();
            command.shutdown().await.unwrap();
            let mut request = Vec::new();
            server.read_to_end(&mut request).await.unwrap();
            assert_eq!(request, b"request");
            server.write_all(b"answer").await.unwrap();
            drop(server);
            let mut answer = Vec::new();
            command.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer, b"answer");
            drop(command);
            assert!(!has_failed(&relay.await.unwrap()));
        });
    }

    #[test]
    fn a_client_that_has_ended_is_kept_as_long_as_the_server_still_answers() {
        run(async {
            tokio::time::pause();
            let (mut command, one) = duplex(1000);
            let (mut server, other) = duplex(1000);
            let relay = spawned(one, other);
            command.write_all(b"request").await.unwrap();
            command.shutdown().await.unwrap();
            for _ in 0..3 {
                sleep(LAST_ANSWER * 2 / 3).await;
                server.write_all(b"word").await.unwrap();
                command.read_exact(&mut [0; 4]).await.unwrap();
            }
            let begin = tokio::time::Instant::now();
            assert!(!has_failed(&relay.await.unwrap()));
            assert!((LAST_ANSWER..LAST_ANSWER + 2 * LINGER).contains(&begin.elapsed()));
        });
    }

    #[test]
    fn a_switch_to_another_protocol_is_recognised_in_each_answer_and_however_it_comes() {
        for (events, is_switched) in [
            (&["HTTP/1.1 101 Switching Protocols"][..], true),
            (&["HTTP/1", ".1 10", "1 Switching Protocols"], true),
            (&["HTTP/1.1 200 OK", "HTTP/1.1 101"], false),
            (&["HTTP/1.1 200 OK", "REQUEST", "HTTP/1.1 101"], true),
            (&["HTTP/1.1 100 Continue", "REQUEST", "HTTP/1", "REQUEST", ".1 101"], true),
            (&["HTTP/1.1 101", "REQUEST", "HTTP/1.1 200 OK"], true),
            (&["REQUEST", "HTTP/1.1 10"], false),
        ] {
            let mut answer = AnswerStart::default();
            for event in events {
                match *event {
                    "REQUEST" => answer.request_sent(),
                    bytes => answer.read(bytes.as_bytes()),
                }
            }
            assert_eq!(answer == AnswerStart::Switched, is_switched, "{events:?}");
        }
    }

    /// A request on it would be refused; what was let in as another protocol goes on.
    #[test]
    fn a_connection_whose_certificate_was_renewed_ends_unless_it_is_no_longer_http() {
        run(async {
            tokio::time::pause();
            let ordinary = b"HTTP/1.1 200 OK";
            for (answers, ends) in [
                (&[&ordinary[..]][..], true),
                (&[SWITCHING], false),
                (&[ordinary, SWITCHING], false),
            ] {
                let (mut command, mut one) = duplex(1000);
                let (mut server, mut other) = duplex(1000);
                let relay = tokio::spawn(async move {
                    let superseded = Box::pin(sleep(Duration::from_secs(1)));
                    relay(&mut one, &mut other, superseded).await
                });
                for answer in answers {
                    command.write_all(b"request").await.unwrap();
                    server.read_exact(&mut [0; 7]).await.unwrap();
                    server.write_all(answer).await.unwrap();
                    command.read_exact(&mut vec![0; answer.len()]).await.unwrap();
                }
                let ended = timeout(Duration::from_secs(30), relay).await;
                assert_eq!(ended.is_ok(), ends, "{answers:?}");
            }
        });
    }

    #[test]
    fn who_does_not_read_holds_up_who_sends() {
        run(async {
            let (mut command, one) = duplex(1000);
            let (_server, other) = duplex(1000);
            spawned(one, other);
            let mut sent = 0;
            let patience = Duration::from_millis(100);
            while timeout(patience, command.write_all(&[0; 1000])).await.is_ok() {
                sent += 1000;
                assert!(sent < 2 * BUFFER_SIZE, "it takes all it is given");
            }
        });
    }

    impl Side for DuplexStream {
        fn poll_break_off(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_shutdown(context)
        }
    }

    /// Says something, then fails or ends; what it is sent it takes or refuses.
    struct ScriptedServer {
        data: Vec<u8>,
        ends: bool,
        takes: bool,
        ending: Arc<Mutex<Option<&'static str>>>,
    }

    impl ScriptedServer {
        fn new(data: &[u8], ends: bool, takes: bool) -> Self {
            Self { data: data.to_owned(), ends, takes, ending: Arc::default() }
        }
    }

    impl AsyncRead for ScriptedServer {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.data.is_empty() && !self.ends {
                return Poll::Ready(Err(io::Error::other("gone")));
            }
            let length = self.data.len().min(buffer.remaining());
            buffer.put_slice(&self.data.drain(..length).collect::<Vec<_>>());
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for ScriptedServer {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(if self.takes {
                Ok(bytes.len())
            } else {
                Err(io::ErrorKind::ConnectionReset.into())
            })
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            *self.ending.lock().unwrap() = Some("ended");
            Poll::Ready(Ok(()))
        }
    }

    impl Side for ScriptedServer {
        fn poll_break_off(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            *self.ending.lock().unwrap() = Some("broken off");
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn what_came_before_a_failure_arrives_and_the_failure_is_told() {
        run(async {
            let (mut command, one) = duplex(1000);
            let relay = spawned(one, ScriptedServer::new(b"last words", false, true));
            let mut heard = Vec::new();
            command.read_to_end(&mut heard).await.unwrap();
            assert_eq!(heard, b"last words");
            drop(command);
            let broken = relay.await.unwrap();
            assert_eq!(broken.reading.unwrap().to_string(), "gone");
            assert!(broken.writing.is_none() && broken.unanswered.is_none());
        });
        run(async {
            for takes in [true, false] {
                let (mut command, mut one) = duplex(1000);
                command.write_all(b"request").await.unwrap();
                let broken =
                    relay(&mut one, &mut ScriptedServer::new(b"", false, takes), pending()).await;
                assert_eq!(broken.unanswered.unwrap(), b"request");
                one.write_all(b"answer").await.unwrap();
                drop(one);
                let mut heard = String::new();
                command.read_to_string(&mut heard).await.unwrap();
                assert_eq!(heard, "answer");
            }
        });
    }

    #[test]
    fn a_server_that_stops_reading_is_heard_to_its_end() {
        run(async {
            let answer: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
            let (mut command, one) = duplex(1000);
            let server = ScriptedServer::new(&answer, true, false);
            // It is refused before anything is read of the answer.
            command.write_all(b"request").await.unwrap();
            let relay = spawned(one, server);
            let (mut reading, mut writing) = tokio::io::split(command);
            // The command doesn't stop to send until it has the answer.
            let sending = tokio::spawn(async move {
                while writing.write_all(&[0; 1000]).await.is_ok() {
                    tokio::task::yield_now().await;
                }
            });
            let mut heard = Vec::new();
            reading.read_to_end(&mut heard).await.unwrap();
            assert!(heard == answer, "{} bytes", heard.len());
            sending.abort();
            drop(reading);
            let broken = relay.await.unwrap();
            assert!(broken.writing.is_some() && broken.reading.is_none());
        });
    }

    #[test]
    fn an_end_that_was_none_is_not_passed_on_as_one() {
        let ending = |is_clean: bool| {
            run(async {
                let server = ScriptedServer::new(b"", true, true);
                let ending = Arc::clone(&server.ending);
                let command = ScriptedServer::new(b"request", is_clean, true);
                assert!(!has_failed(&relay(&mut { command }, &mut { server }, pending()).await));
                ending.lock().unwrap().take()
            })
        };
        assert_eq!(ending(true), Some("ended"));
        assert_eq!(ending(false), Some("broken off"));
    }

    #[test]
    fn who_neither_reads_nor_closes_is_not_waited_for_for_ever() {
        run(async {
            tokio::time::pause();
            let begin = tokio::time::Instant::now();
            let (command, one) = duplex(1000);
            assert!(has_failed(
                &relay(&mut { one }, &mut ScriptedServer::new(b"word", false, true), pending())
                    .await
            ));
            assert!((LINGER..2 * LINGER).contains(&begin.elapsed()));
            drop(command);
        });
    }
}
