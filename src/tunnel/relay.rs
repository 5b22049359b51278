//! Bytes both ways between two streams, with half-close and back-pressure, and no knowledge of
//! what they are.
//!
//! An idle connection holds no buffer: a run may have hundreds of them.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Some TLS records.
const SCRATCH: usize = 128 * 1024;

thread_local! {
    /// Where bytes rest between a read and the write that follows it at once.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH]);
}

/// One direction of a connection.
#[derive(Default)]
struct Direction {
    /// Read and not yet taken by the other side.
    waiting: Vec<u8>,
    is_at_end: bool,
    is_closed: bool,
    is_unflushed: bool,
    /// Of reading, when all that was read has been passed on.
    failure: Option<io::Error>,
}

/// Which of the two streams failed.
#[derive(Debug)]
pub(super) enum Broken {
    One,
    Other(io::Error),
}

/// Copies until both sides have ended. The end of one side is passed on to the other, which may
/// go on sending; an error of either ends both.
pub(super) async fn relay<A, B>(mut one: A, mut other: B) -> Result<(), Broken>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (mut there, mut back) = (Direction::default(), Direction::default());
    poll_fn(|context| {
        let there = there
            .poll(context, Pin::new(&mut one), Pin::new(&mut other))
            .map_err(|failure| match failure {
                Failure::Reading(_) => Broken::One,
                Failure::Writing(error) => Broken::Other(error),
            })?;
        let back = back
            .poll(context, Pin::new(&mut other), Pin::new(&mut one))
            .map_err(|failure| match failure {
                Failure::Reading(error) => Broken::Other(error),
                Failure::Writing(_) => Broken::One,
            })?;
        match (there, back) {
            (Poll::Ready(()), Poll::Ready(())) => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        }
    })
    .await
}

enum Failure {
    Reading(io::Error),
    Writing(io::Error),
}

impl Direction {
    fn poll<A: AsyncRead, B: AsyncWrite>(
        &mut self,
        context: &mut Context<'_>,
        mut from: Pin<&mut A>,
        mut to: Pin<&mut B>,
    ) -> Poll<Result<(), Failure>> {
        loop {
            if !self.waiting.is_empty() {
                let waiting = mem::take(&mut self.waiting);
                self.pass_on(context, &waiting, to.as_mut())?;
                if !self.waiting.is_empty() {
                    return Poll::Pending;
                }
            }
            if self.failure.is_some() {
                ready!(to.as_mut().poll_flush(context)).map_err(Failure::Writing)?;
            }
            if let Some(failure) = self.failure.take() {
                return Poll::Ready(Err(Failure::Reading(failure)));
            }
            if self.is_at_end {
                if !self.is_closed {
                    ready!(to.as_mut().poll_shutdown(context)).map_err(Failure::Writing)?;
                    self.is_closed = true;
                }
                return Poll::Ready(Ok(()));
            }
            let is_dry = BUFFER.with_borrow_mut(|buffer| {
                let mut buffer = ReadBuf::new(buffer);
                let is_dry = self.fill(context, &mut buffer, from.as_mut())?;
                self.pass_on(context, buffer.filled(), to.as_mut())?;
                Ok(is_dry)
            })?;
            if is_dry && !self.is_at_end {
                if self.is_unflushed && self.waiting.is_empty() {
                    ready!(to.as_mut().poll_flush(context)).map_err(Failure::Writing)?;
                    self.is_unflushed = false;
                }
                return Poll::Pending;
            }
        }
    }

    /// Reads what there is; whether nothing is left for now.
    fn fill<A: AsyncRead>(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        mut from: Pin<&mut A>,
    ) -> Result<bool, Failure> {
        while buffer.remaining() > 0 {
            let before = buffer.filled().len();
            match from.as_mut().poll_read(context, buffer) {
                Poll::Pending => return Ok(true),
                // What came before it is passed on first.
                Poll::Ready(Err(error)) if before > 0 => {
                    self.failure = Some(error);
                    return Ok(false);
                }
                Poll::Ready(Err(error)) => return Err(Failure::Reading(error)),
                Poll::Ready(Ok(())) if buffer.filled().len() == before => {
                    self.is_at_end = true;
                    return Ok(true);
                }
                Poll::Ready(Ok(())) => {}
            }
        }
        Ok(false)
    }

    /// Writes as much as the other side takes at once; the rest is left waiting.
    fn pass_on<B: AsyncWrite>(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        mut to: Pin<&mut B>,
    ) -> Result<(), Failure> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match to
                .as_mut()
                .poll_write(context, rest)
                .map_err(Failure::Writing)?
            {
                Poll::Ready(0) => return Err(Failure::Writing(io::ErrorKind::WriteZero.into())),
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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::runtime::Builder;
    use tokio::time::timeout;

    use super::*;

    fn run<T>(test: impl Future<Output = T>) -> T {
        Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(test)
    }

    #[test]
    fn the_end_of_one_side_leaves_the_other_open() {
        run(async {
            let (mut command, one) = duplex(1000);
            let (mut server, other) = duplex(1000);
            let relay = tokio::spawn(relay(one, other));
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
            relay.await.unwrap().unwrap();
        });
    }

    #[test]
    fn many_bytes_arrive_as_they_were_sent_through_narrow_pipes() {
        run(async {
            let (mut command, one) = duplex(777);
            let (mut server, other) = duplex(333);
            tokio::spawn(relay(one, other));
            let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
            let sent = bytes.clone();
            tokio::spawn(async move { command.write_all(&sent).await });
            let mut received = vec![0; bytes.len()];
            server.read_exact(&mut received).await.unwrap();
            assert!(received == bytes);
        });
    }

    #[test]
    fn who_does_not_read_holds_up_who_sends() {
        run(async {
            let (mut command, one) = duplex(1000);
            let (_server, other) = duplex(1000);
            tokio::spawn(relay(one, other));
            let mut sent = 0;
            let patience = Duration::from_millis(100);
            while timeout(patience, command.write_all(&[0; 1000]))
                .await
                .is_ok()
            {
                sent += 1000;
                assert!(sent < 2 * SCRATCH, "it takes all it is given");
            }
        });
    }

    /// Says something and then fails.
    struct Failing(&'static [u8]);

    impl AsyncRead for Failing {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.0.is_empty() {
                return Poll::Ready(Err(io::Error::other("gone")));
            }
            buffer.put_slice(mem::take(&mut self.0));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Failing {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn what_came_before_a_failure_arrives_and_the_failure_is_its_sides() {
        run(async {
            let (mut command, one) = duplex(1000);
            let relay = tokio::spawn(relay(one, Failing(b"last words")));
            let mut heard = Vec::new();
            command.read_to_end(&mut heard).await.unwrap();
            assert_eq!(heard, b"last words");
            let broken = relay.await.unwrap();
            assert!(matches!(broken, Err(Broken::Other(error)) if error.to_string() == "gone"));
        });
        run(async {
            let (_server, other) = duplex(1000);
            let broken = relay(Failing(b""), other).await;
            assert!(matches!(broken, Err(Broken::One)));
        });
    }
}
