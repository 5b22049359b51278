//! A stream of bytes on the network, read in large pieces.
//!
//! rustls asks for little more than a record at a time, and each question is a system call. So more
//! is read than was asked for, into a buffer that all connections of a thread share; what is left
//! over rests with its connection. An idle connection holds nothing.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const AHEAD: usize = 128 * 1024;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; AHEAD]);
}

/// A stream of bytes to a server.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The stream, with what was read ahead from it.
pub(super) struct Wire<S> {
    stream: S,
    ahead: Vec<u8>,
    /// How much of it has been taken.
    taken: usize,
}

impl<S> Wire<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            ahead: Vec::new(),
            taken: 0,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        wanted: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(ahead) = this.ahead.get(this.taken..).filter(|rest| !rest.is_empty()) {
            this.taken += put(ahead, wanted);
            return Poll::Ready(Ok(()));
        }
        (this.ahead, this.taken) = (Vec::new(), 0);
        BUFFER.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut buffer))?;
            let bytes = buffer.filled();
            let rest = bytes.get(put(bytes, wanted)..).unwrap_or_default();
            this.ahead.extend_from_slice(rest);
            Poll::Ready(Ok(()))
        })
    }
}

/// Hands over as much as is wanted; how much that is.
fn put(bytes: &[u8], wanted: &mut ReadBuf<'_>) -> usize {
    let length = bytes.len().min(wanted.remaining());
    wanted.put_slice(bytes.get(..length).unwrap_or_default());
    length
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
