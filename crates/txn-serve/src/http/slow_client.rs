//! A timeout for clients that do not read their answers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// The bytes that a waiting client must take within the timeout.
///
/// Without this number a client could hold a large answer by taking one byte now and then.
const LEAST: usize = 16 << 10;

/// A stream that fails if the client takes too little.
///
/// The writes of an answer fail.
pub(crate) struct SlowClient<S> {
    stream: S,
    timeout: Duration,
    /// Runs while the client does not take all bytes of an answer.
    waiting: Option<Waiting>,
}

struct Waiting {
    end: Pin<Box<Sleep>>,
    taken: usize,
}

impl<S> SlowClient<S> {
    pub(crate) fn new(stream: S, timeout: Duration) -> Self {
        Self { stream, timeout, waiting: None }
    }

    /// Notes the result of a write.
    fn noted(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                if let Some(waiting) = &mut self.waiting {
                    waiting.taken = waiting.taken.saturating_add(bytes);
                    if waiting.taken >= LEAST {
                        waiting.taken = 0;
                        waiting.end.as_mut().reset(Instant::now() + self.timeout);
                    }
                }
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let timeout = self.timeout;
                let new = || Waiting { end: Box::pin(sleep(timeout)), taken: 0 };
                let waiting = self.waiting.get_or_insert_with(new);
                ready!(waiting.end.as_mut().poll(context));
                let text = "the client does not read its answer";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SlowClient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SlowClient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.noted(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.noted(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// A flush means that the client has taken the whole answer.
    ///
    /// The system of the client may have taken the answer instead.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.waiting = None;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn client_that_reads_nothing_ends_the_write() {
        let (client, server) = duplex(1_000);
        let mut server = SlowClient::new(server, TIMEOUT);
        let error = server.write_all(&[0; 5_000]).await.expect_err("the client reads nothing");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(client);
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_reads_one_byte_at_a_time_is_cut() {
        let (mut client, server) = duplex(1_000);
        let mut server = SlowClient::new(server, TIMEOUT);
        let reading = tokio::spawn(async move {
            while client.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        server.write_all(&[0; 5_000]).await.expect_err("the client is too slow");
        drop(server);
        reading.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn steady_client_is_served_however_long_it_takes() {
        let (mut client, server) = duplex(1_000);
        let mut server = SlowClient::new(server, TIMEOUT);
        let reading = tokio::spawn(async move {
            let mut part = [0; 1_000];
            let mut all = 0;
            while let Ok(bytes @ 1..) = client.read(&mut part).await {
                all += bytes;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            all
        });
        // An idle time between two answers does not count.
        for _ in 0..3 {
            server.write_all(&[0; 100_000]).await.expect("the client reads");
            server.flush().await.expect("flushes");
            tokio::time::sleep(TIMEOUT * 2).await;
        }
        drop(server);
        assert_eq!(reading.await.expect("no panic"), 300_000);
    }
}
