//! Certificates that `braid top` trusts: those of the system, or those of a file.

use std::{fs, path::Path, sync::Arc};

use anyhow::{Context, Result};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, ring::default_provider},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
};

use crate::exit::usage;

/// `file` has trusted certificates as PEM, in place of those of the system.
pub fn config(file: Option<&Path>) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(default_provider());
    let verifier = Arc::new(verifier(file, &provider)?);
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("cannot use TLS")?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn verifier(file: Option<&Path>, provider: &Arc<CryptoProvider>) -> Result<Verifier> {
    let given = file.map(read).transpose()?;
    let trusted = given.clone().unwrap_or_else(|| rustls_native_certs::load_native_certs().certs);
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted);
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
    let inner = inner.map_err(|error| match file {
        Some(path) => usage(format!("{} has no certificate that can be used: {error}", path.display())),
        None => usage("the system has no trusted certificates: give that of the server with --tls-ca FILE"),
    })?;
    Ok(Verifier { inner, given: given.unwrap_or_default() })
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(usage(format!("{} has no certificate: give a PEM file", path.display()))),
    }
}

/// Checks as all clients do, and also accepts a given certificate itself: `openssl req -x509` makes
/// one of an authority, which webpki refuses as that of a server.
#[derive(Debug)]
struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
    given: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.given.iter().any(|given| given == certificate) {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.inner.verify_server_cert(certificate, issuers, name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::CertificateError;

    #[test]
    fn given_certificate_is_trusted_for_its_names_alone() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls");
        let authority = fixtures.join("authority.pem");
        let other = fixtures.join("../../../../braid-server/tests/fixtures/tls/server.pem");
        let checked = |trusted: &Path, shown: &Path, name: &str| {
            let verifier = verifier(Some(trusted), &Arc::new(default_provider())).unwrap();
            let shown = read(shown).unwrap().remove(0);
            let name = ServerName::try_from(name.to_owned()).unwrap();
            verifier.verify_server_cert(&shown, &[], &name, &[], UnixTime::now()).map(drop)
        };
        assert_eq!(checked(&authority, &authority, "localhost"), Ok(()));
        assert_eq!(checked(&other, &other, "127.0.0.1"), Ok(()));
        for certificate in [&authority, &other] {
            let wrong = checked(certificate, certificate, "elsewhere.example").unwrap_err();
            assert!(
                matches!(
                    wrong,
                    Error::InvalidCertificate(
                        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
                    )
                ),
                "{wrong}"
            );
        }
        assert!(checked(&authority, &other, "localhost").is_err() && checked(&other, &authority, "localhost").is_err());
        assert!(read(&fixtures.join("make.sh")).is_err());
    }
}
