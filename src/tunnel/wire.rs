//! A stream of bytes on the network, read in large pieces.
//!
//! rustls asks for little more than a record at a time, and each question is a system call. What
//! is read ahead rests here, in a buffer that goes when there is nothing to read, so that an idle
//! connection holds none.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const AHEAD: usize = 128 * 1024;

/// A stream of bytes to a server.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The stream, with what was read ahead from it.
pub(super) struct Wire<S> {
    stream: S,
    /// Empty, or [`AHEAD`] long with bytes in `unread`.
    buffer: Vec<u8>,
    unread: std::ops::Range<usize>,
}

impl<S> Wire<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            unread: 0..0,
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
        if this.unread.is_empty() {
            this.buffer.resize(AHEAD, 0);
            let mut ahead = ReadBuf::new(&mut this.buffer);
            match Pin::new(&mut this.stream).poll_read(context, &mut ahead) {
                Poll::Ready(Ok(())) => this.unread = 0..ahead.filled().len(),
                other => {
                    this.buffer = Vec::new();
                    return other;
                }
            }
        }
        let ahead = this.buffer.get(this.unread.clone()).unwrap_or_default();
        let length = ahead.len().min(wanted.remaining());
        wanted.put_slice(ahead.get(..length).unwrap_or_default());
        this.unread.start += length;
        Poll::Ready(Ok(()))
    }
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
