//! A stream of bytes on the network, read in large pieces.
//!
//! rustls reads little more than a record at a time, and each read is a system call. So more is read than rustls has asked
//! for, into a buffer that the connections share. What is left over stays with its connection. An idle connection holds no
//! buffer.

use std::future::poll_fn;
use std::io::{self, Write as _};
use std::mem;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, Join, ReadBuf, ReadHalf, WriteHalf, join, split};
use tokio_rustls::TlsStream;

use super::relay::{BUFFER_SIZE, Side, give_back, take};

/// If no more bytes than this are left in a buffer, they are copied and the buffer is given back.
const COPY_BELOW: usize = 16 * 1024;

/// The most bytes that are read before they are asked for.
const MAX_READ_AHEAD: usize = 256 * 1024;

/// A stream of bytes to a server.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A stream, with what was read from it before it was asked for.
pub(super) type Wire<S> = Join<ReadAhead<ReadHalf<S>>, WriteHalf<S>>;

pub(super) fn wire<S: AsyncRead + AsyncWrite>(stream: S) -> Wire<S> {
    let (reading, writing) = split(stream);
    join(ReadAhead { stream: reading, buffer: Vec::new(), unread: 0..0 }, writing)
}

pub(super) struct ReadAhead<S> {
    stream: S,
    buffer: Vec<u8>,
    /// The part of the buffer that has not been asked for yet.
    unread: Range<usize>,
}

impl<S> ReadAhead<S> {
    fn rest(&self) -> &[u8] {
        self.buffer.get(self.unread.clone()).unwrap_or_default()
    }

    /// Hands over as much as is asked for, and gives the buffer back if little is left.
    fn copy_out(&mut self, wanted: &mut ReadBuf<'_>) {
        let length = self.unread.len().min(wanted.remaining());
        wanted.put_slice(self.rest().get(..length).unwrap_or_default());
        self.unread.start += length;
        let is_little = self.unread.len() <= COPY_BELOW && self.buffer.len() == BUFFER_SIZE;
        if is_little || self.unread.is_empty() {
            let rest = self.rest().to_vec();
            self.unread = 0..rest.len();
            give_back(mem::replace(&mut self.buffer, rest));
        }
    }
}

impl<S: AsyncRead + Unpin> ReadAhead<S> {
    /// Waits until the other side sends no more, and keeps what it has sent. If that is too much, it waits for ever.
    pub(super) async fn end(&mut self) {
        poll_fn(|context| {
            while self.unread.len() < MAX_READ_AHEAD {
                let mut buffer = take();
                let mut read = ReadBuf::new(&mut buffer);
                let outcome = Pin::new(&mut self.stream).poll_read(context, &mut read);
                let length = read.filled().len();
                let all = [self.rest(), read.filled()].concat();
                give_back(buffer);
                match outcome {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(_) if length == 0 => return Poll::Ready(()),
                    Poll::Ready(_) => {
                        self.unread = 0..all.len();
                        give_back(mem::replace(&mut self.buffer, all));
                    }
                }
            }
            Poll::Pending
        })
        .await;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        wanted: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut outcome = Poll::Ready(Ok(()));
        if this.unread.is_empty() {
            this.buffer = take();
            let mut read = ReadBuf::new(&mut this.buffer);
            outcome = Pin::new(&mut this.stream).poll_read(context, &mut read);
            this.unread = 0..read.filled().len();
        }
        this.copy_out(wanted);
        outcome
    }
}

/// Breaks off by closing without the alert `close_notify`, which would say that nothing is missing (RFC 8446, section 6.1).
impl<S: AsyncRead + AsyncWrite + Unpin> Side for TlsStream<S> {
    /// Encrypts the bytes, for which the connection's buffer has room.
    fn take_in(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Client(stream) => stream.get_mut().1.writer().write(bytes),
            Self::Server(stream) => stream.get_mut().1.writer().write(bytes),
        }
    }

    fn poll_break_off(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().get_mut().0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn what_is_read_ahead_comes_in_its_order_and_leaves_nothing_behind() {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut server, stream) = duplex(1 << 20);
            let mut wire = wire(stream);
            let sent: Vec<u8> = (0..=250).cycle().take(1 << 20).collect();
            server.write_all(&sent).await.unwrap();
            // In pieces as rustls asks for them.
            let mut heard = Vec::new();
            while heard.len() < sent.len() {
                let mut piece = vec![0; 4096 + heard.len() % 12_000];
                let length = wire.read(&mut piece).await.unwrap();
                heard.extend_from_slice(&piece[..length]);
            }
            assert!(heard == sent);
            server.shutdown().await.unwrap();
            assert_eq!(wire.read(&mut [0; 1]).await.unwrap(), 0);
            assert_eq!(wire.reader().buffer.capacity(), 0);
        });
    }

    #[test]
    fn connections_side_by_side_share_no_bytes() {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut heard: [Vec<u8>; 3] = Default::default();
            let mut ends = Vec::new();
            for letter in *b"abc" {
                let (mut server, stream) = duplex(1 << 20);
                server.write_all(&vec![letter; 200_000]).await.unwrap();
                ends.push((letter, server, wire(stream)));
            }
            for _ in 0..60 {
                for ((_, _, wire), heard) in ends.iter_mut().zip(&mut heard) {
                    let mut piece = [0; 4096];
                    if heard.len() < 200_000 {
                        let length = wire.read(&mut piece).await.unwrap();
                        heard.extend_from_slice(&piece[..length]);
                    }
                }
            }
            for ((letter, ..), heard) in ends.iter().zip(&heard) {
                assert!(heard.len() == 200_000 && heard.iter().all(|byte| byte == letter));
            }
        });
    }
}
