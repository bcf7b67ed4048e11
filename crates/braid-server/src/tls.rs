//! TLS: the certificate and its key, and the handshake.
//!
//! rustls with the cryptography of ring, TLS 1.2 and 1.3, and ALPN for HTTP/1.1. No early data: a
//! repeated one could repeat a write.

use crate::{connection::FAR, options::Limits, validity::validity};
use std::{
    fmt, io,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        Error as RustlsError, ServerConfig,
        crypto::ring::default_provider,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
    server::TlsStream,
};

/// The certificate and the private key of a server.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// Takes a certificate, followed by those of its issuers, and its private key, both as PEM.
    ///
    /// Fails with `InvalidInput` if one of them is missing, damaged or encrypted, if they do not
    /// match, or if the certificate is not valid now.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> io::Result<Tls> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
        let chain = chain.map_err(|error| invalid(format!("the certificate is no PEM file: {error:?}")))?;
        let Some(first) = chain.first() else {
            return Err(invalid("the certificate file has no section BEGIN CERTIFICATE: give a PEM file"));
        };
        check_dates(first, SystemTime::now())?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            invalid(
                "the key file has no private key: give a PEM file with a section BEGIN PRIVATE KEY, \
                 which is not encrypted (`openssl pkey -in ENCRYPTED -out KEY`)",
            )
        })?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
        let mut config = config.map_err(|error| match error {
            RustlsError::InconsistentKeys(_) => {
                invalid("the private key does not belong to the certificate: give the key that it was made with")
            }
            error => invalid(format!("the certificate or its private key cannot be used: {error}")),
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls(Arc::new(config)))
    }

    /// Returns the encrypted connection; `None` for a client that speaks no TLS or is too slow.
    pub(crate) async fn accept<S>(&self, stream: S, limits: &Limits) -> Option<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = TlsAcceptor::from(Arc::clone(&self.0)).accept(stream);
        timeout(limits.handshake_time.min(FAR), handshake).await.ok()?.ok()
    }
}

fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message.into())
}

/// Clients refuse a certificate outside its dates; it is better to fail at the start.
fn check_dates(certificate: &[u8], now: SystemTime) -> io::Result<()> {
    // One that this parser does not understand is left to the clients.
    let Some((from, until)) = validity(certificate) else { return Ok(()) };
    let now = i64::try_from(now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()).unwrap_or(i64::MAX);
    let day = 24 * 3600;
    if now > until {
        let days = (now - until) / day;
        return Err(invalid(format!("the certificate expired {days} days ago: renew it, or set this machine's clock")));
    }
    if now < from {
        let days = (from - now) / day;
        return Err(invalid(format!(
            "the certificate becomes valid in {days} days only: wait, or set this machine's clock"
        )));
    }
    Ok(())
}
