//! Certificates for a server on the loopback.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Whether a server speaks TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tls {
    /// Plain HTTP.
    #[default]
    None,
    /// A certificate of the authority that the kubeconfig names.
    Trusted,
    /// A certificate of an authority that the kubeconfig does not name.
    Untrusted,
}

/// A server's certificate, and the authority that its clients believe.
pub(super) struct Certificates {
    chain: CertificateDer<'static>,
    key: Vec<u8>,
    believed: String,
}

impl Tls {
    pub(super) fn certificates(self) -> Option<Certificates> {
        let (believed, issuer) = authority();
        let (_, other) = authority();
        let issuer = match self {
            Tls::None => return None,
            Tls::Trusted => issuer,
            Tls::Untrusted => other,
        };
        let key = KeyPair::generate().expect("a key");
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let params = CertificateParams::new(names).expect("names of the loopback");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        let chain = certificate.der().clone();
        Some(Certificates { chain, key: key.serialize_der(), believed })
    }
}

fn authority() -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new([]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    (certificate.pem(), Issuer::new(params, key))
}

impl Certificates {
    /// The authority that clients believe, as a kubeconfig has it: PEM in base64.
    pub(super) fn authority(&self) -> String {
        base64(self.believed.as_bytes())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions that ring speaks")
            .with_no_client_auth()
            .with_single_cert(vec![self.chain.clone()], key)
            .expect("a certificate with its key");
        TlsAcceptor::from(Arc::new(config))
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(*three.get(at).unwrap_or(&0)));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() { digit.into() } else { '=' });
        }
    }
    text
}
