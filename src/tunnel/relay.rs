//! Copies bytes both ways between two streams, with half-close and back-pressure. What the bytes mean matters only for one
//! thing: whether an answer switches to another protocol.
//!
//! An idle connection holds no buffer, since a run may have hundreds of them. If one direction has ended, the other one
//! goes on to its own end: a server may have answered before it stopped reading.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncWrite};
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
pub(super) trait Side: AsyncBufRead + AsyncWrite + Unpin {
    /// Takes as many of the bytes as there is room for, to be sent with the next flush.
    fn take_in(&mut self, bytes: &[u8]) -> io::Result<usize>;

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
        if to_one.watch != AnswerStart::Switched
            && Pin::new(&mut is_superseded).poll(context).is_ready()
        {
            return Poll::Ready(End::Superseded);
        }
        if to_other.stage.is_over() && !to_one.stage.is_over() {
            if to_one.heard.take_news() {
                last_answer = None;
            }
            let waiting = last_answer.get_or_insert_with(|| Box::pin(sleep(LAST_ANSWER)));
            return waiting.as_mut().poll(context).map(|()| End::Over);
        }
        ready_if(to_other.stage.is_over() && to_one.stage.is_over(), End::Over)
    })
    .await;
    let mut unanswered = None;
    match end {
        End::Unanswered => unanswered = both.to_other.watch.0.take(),
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
    to_other: Direction<KeptRequest>,
    /// From the other stream to the first one.
    to_one: Direction<AnswerStart>,
}

impl Directions {
    fn new() -> Self {
        let kept = KeptRequest(Some(Vec::new()));
        Self { to_other: Direction::new(kept), to_one: Direction::new(AnswerStart::default()) }
    }

    /// Passes on what there is, until neither direction ends any more by that. What the first stream sends is kept until
    /// the other one says something.
    fn poll<A: Side, B: Side>(&mut self, context: &mut Context<'_>, one: &mut A, other: &mut B) {
        loop {
            let Self { to_other, to_one } = self;
            let before = [to_other.stage.is_over(), to_one.stage.is_over()];
            to_other.poll(context, one, other, SilentFailure::PassedOn);
            if to_other.heard.take_news() {
                to_one.watch.request_sent();
            }
            let of_silence = if to_other.can_be_answered() {
                SilentFailure::Spared
            } else {
                SilentFailure::PassedOn
            };
            to_one.poll(context, other, one, of_silence);
            if to_one.heard != Heard::Nothing {
                to_other.watch = KeptRequest(None);
            }
            // Nothing more is sent to a side that can't be read.
            if to_other.read_error.is_some() {
                to_one.stage.stop_passing();
            }
            if to_one.read_error.is_some() {
                to_other.stage.stop_passing();
            }
            let after = [to_other.stage.is_over(), to_one.stage.is_over()];
            if before == after || self.is_unanswered() {
                return;
            }
        }
    }

    /// Whether the other stream has failed before it said anything, and the first one can be given an answer.
    fn is_unanswered(&self) -> bool {
        let Self { to_other, to_one } = self;
        to_one.read_error.is_some() && to_one.heard == Heard::Nothing && to_other.can_be_answered()
    }

    /// Discards what comes, until both streams have ended.
    fn poll_closed<A: Side, B: Side>(
        &mut self,
        context: &mut Context<'_>,
        one: &mut A,
        other: &mut B,
    ) -> Poll<()> {
        self.to_other.discard(context, one);
        self.to_one.discard(context, other);
        let has_ended = self.to_other.stage.has_ended() && self.to_one.stage.has_ended();
        ready_if(has_ended, ())
    }
}

fn ready_if<T>(is_so: bool, value: T) -> Poll<T> {
    if is_so { Poll::Ready(value) } else { Poll::Pending }
}

/// One direction of a connection.
struct Direction<W> {
    stage: Stage,
    heard: Heard,
    /// What is known of the bytes that were read.
    watch: W,
    read_error: Option<io::Error>,
    write_error: Option<io::Error>,
}

/// How far a direction is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// What is read is passed on.
    Passing,
    /// There is no more to read, which is still to be passed on.
    Ending,
    /// Nothing more is passed on. What still comes is discarded.
    Discarding,
    /// There is no more to read, and nothing to pass on.
    Over,
}

impl Stage {
    /// Whether there is no more to read.
    fn has_ended(self) -> bool {
        matches!(self, Self::Ending | Self::Over)
    }

    /// Whether nothing more is passed on.
    fn is_over(self) -> bool {
        matches!(self, Self::Discarding | Self::Over)
    }

    fn stop_passing(&mut self) {
        *self = if self.has_ended() { Self::Over } else { Self::Discarding };
    }

    fn stop_reading(&mut self) {
        *self = if self.is_over() { Self::Over } else { Self::Ending };
    }
}

/// What was read in a direction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Heard {
    Nothing,
    /// Something, also since this was asked last.
    News,
    /// Something, but nothing since this was asked last.
    NoNews,
}

impl Heard {
    /// Whether something was read since this was asked last.
    fn take_news(&mut self) -> bool {
        let is_news = *self == Self::News;
        if is_news {
            *self = Self::NoNews;
        }
        is_news
    }
}

/// What becomes of the failure of a side that has said nothing yet.
#[derive(Clone, Copy, Eq, PartialEq)]
enum SilentFailure {
    /// The other side sees a connection that broke off.
    PassedOn,
    /// The other side is left as it is, to be given an answer.
    Spared,
}

/// Sees all bytes of a direction.
trait Watch {
    fn read(&mut self, bytes: &[u8]);
}

/// Everything that the client has sent, as long as it may be needed to give the client an answer.
struct KeptRequest(Option<Vec<u8>>);

impl Watch for KeptRequest {
    /// Keeps the bytes. Once it would be too much, nothing is kept any more.
    fn read(&mut self, bytes: &[u8]) {
        let Some(kept) = &mut self.0 else { return };
        if kept.len() + bytes.len() > KEPT {
            self.0 = None;
        } else {
            kept.extend(bytes);
        }
    }
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
}

impl Watch for AnswerStart {
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

impl Direction<KeptRequest> {
    /// Whether the client waits for an answer, and all that it has sent is known.
    fn can_be_answered(&self) -> bool {
        self.watch.0.is_some() && !self.stage.has_ended()
    }
}

impl<W: Watch> Direction<W> {
    fn new(watch: W) -> Self {
        let (stage, heard) = (Stage::Passing, Heard::Nothing);
        Self { stage, heard, watch, read_error: None, write_error: None }
    }

    /// Passes on what there is, and discards what can't be passed on.
    fn poll<A: Side, B: Side>(
        &mut self,
        context: &mut Context<'_>,
        from: &mut A,
        to: &mut B,
        of_silence: SilentFailure,
    ) {
        if !self.stage.is_over() {
            let Poll::Ready(outcome) = self.poll_pass_on(context, from, to, of_silence) else {
                return;
            };
            self.write_error = outcome.err();
            self.stage.stop_passing();
        }
        self.discard(context, from);
    }

    /// Passes on what there is, until the end or a write that fails. What has been read is sent together, once there is no
    /// more to read for now or no more room.
    fn poll_pass_on<A: Side, B: Side>(
        &mut self,
        context: &mut Context<'_>,
        from: &mut A,
        to: &mut B,
        of_silence: SilentFailure,
    ) -> Poll<io::Result<()>> {
        while self.stage == Stage::Passing {
            match Pin::new(&mut *from).poll_fill_buf(context) {
                Poll::Ready(Ok([])) => self.stage.stop_reading(),
                Poll::Ready(Ok(bytes)) => {
                    let length = to.take_in(bytes)?;
                    let is_full = length < bytes.len();
                    self.watch.read(bytes.get(..length).unwrap_or_default());
                    self.heard = Heard::News;
                    Pin::new(&mut *from).consume(length);
                    if is_full {
                        ready!(Pin::new(&mut *to).poll_flush(context))?;
                    }
                }
                Poll::Ready(Err(error)) => {
                    self.read_error = Some(error);
                    self.stage.stop_reading();
                }
                Poll::Pending => {
                    ready!(Pin::new(&mut *to).poll_flush(context))?;
                    return Poll::Pending;
                }
            }
        }
        self.poll_end(context, to, of_silence)
    }

    /// Passes on that there is no more to read: as an ordinary end or, after a failure, as a connection that broke off.
    fn poll_end<B: Side>(
        &mut self,
        context: &mut Context<'_>,
        to: &mut B,
        of_silence: SilentFailure,
    ) -> Poll<io::Result<()>> {
        if self.read_error.is_none() {
            return Pin::new(to).poll_shutdown(context);
        }
        if self.heard != Heard::Nothing || of_silence == SilentFailure::PassedOn {
            ready!(Pin::new(&mut *to).poll_flush(context))?;
            // The connection has failed already. That this fails as well is not worth reporting.
            let _ = ready!(Pin::new(to).poll_break_off(context));
        }
        Poll::Ready(Ok(()))
    }

    /// Discards what comes.
    fn discard<A: Side>(&mut self, context: &mut Context<'_>, from: &mut A) {
        while !self.stage.has_ended() {
            match Pin::new(&mut *from).poll_fill_buf(context) {
                Poll::Ready(Ok([]) | Err(_)) => self.stage.stop_reading(),
                Poll::Ready(Ok(bytes)) => {
                    let length = bytes.len();
                    self.watch.read(bytes);
                    self.heard = Heard::News;
                    Pin::new(&mut *from).consume(length);
                }
                Poll::Pending => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::{Arc, Mutex};

    use std::time::Duration;

    use tokio::io::{
        AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadBuf, duplex,
    };
    use tokio::runtime::Builder;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;

    fn run<T>(test: impl Future<Output = T>) -> T {
        Builder::new_current_thread().enable_time().build().unwrap().block_on(test)
    }

    fn spawned<A: End + Send + 'static, B: End + Send + 'static>(
        one: A,
        other: B,
    ) -> JoinHandle<Broken> {
        let (mut one, mut other) = (Buffered::new(one), Buffered::new(other));
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
                let (mut command, one) = duplex(1000);
                let (mut server, other) = duplex(1000);
                let (mut one, mut other) = (Buffered::new(one), Buffered::new(other));
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

    /// A stream without buffers.
    trait End: AsyncRead + AsyncWrite + Unpin {
        /// [`Side::poll_break_off`]
        fn poll_break(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>>;
    }

    impl End for DuplexStream {
        fn poll_break(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_shutdown(context)
        }
    }

    /// A stream with buffers, as TLS has them.
    struct Buffered<S> {
        stream: BufReader<S>,
        unsent: Vec<u8>,
    }

    impl<S: AsyncRead> Buffered<S> {
        fn new(stream: S) -> Self {
            Self { stream: BufReader::new(stream), unsent: Vec::new() }
        }
    }

    impl<S: End> AsyncRead for Buffered<S> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_read(context, buffer)
        }
    }

    impl<S: End> AsyncBufRead for Buffered<S> {
        fn poll_fill_buf(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<io::Result<&[u8]>> {
            Pin::new(&mut self.get_mut().stream).poll_fill_buf(context)
        }

        fn consume(mut self: Pin<&mut Self>, length: usize) {
            Pin::new(&mut self.stream).consume(length);
        }
    }

    impl<S: End> AsyncWrite for Buffered<S> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            ready!(self.as_mut().poll_flush(context))?;
            Pin::new(self.stream.get_mut()).poll_write(context, bytes)
        }

        fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            let Self { stream, unsent } = self.get_mut();
            while !unsent.is_empty() {
                let sent = ready!(Pin::new(stream.get_mut()).poll_write(context, unsent))?;
                unsent.drain(..sent);
            }
            Pin::new(stream.get_mut()).poll_flush(context)
        }

        fn poll_shutdown(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<io::Result<()>> {
            ready!(self.as_mut().poll_flush(context))?;
            Pin::new(self.stream.get_mut()).poll_shutdown(context)
        }
    }

    impl<S: End> Side for Buffered<S> {
        fn take_in(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let length = bytes.len().min(SEGMENT - self.unsent.len());
            self.unsent.extend(&bytes[..length]);
            Ok(length)
        }

        fn poll_break_off(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(self.stream.get_mut()).poll_break(context)
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

    impl End for ScriptedServer {
        fn poll_break(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
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
                let (mut command, one) = duplex(1000);
                let mut one = Buffered::new(one);
                command.write_all(b"request").await.unwrap();
                let mut server = Buffered::new(ScriptedServer::new(b"", false, takes));
                let broken = relay(&mut one, &mut server, pending()).await;
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
                assert!(!has_failed(&spawned(command, server).await.unwrap()));
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
            let relay = spawned(one, ScriptedServer::new(b"word", false, true));
            assert!(has_failed(&relay.await.unwrap()));
            assert!((LINGER..2 * LINGER).contains(&begin.elapsed()));
            drop(command);
        });
    }
}
