//! S3 over HTTP.

use crate::{ObjectStoreTarget, TargetOptions};
use braiddb::{Error, Result};
use object_store::{ClientOptions, RetryConfig, aws::AmazonS3Builder};
use std::{sync::Arc, time::Duration};

const CONNECT_TIME: Duration = Duration::from_secs(5);

/// A place in S3, or in a store with its interface.
///
/// Credentials and region come from the environment, as with other programs: `AWS_ACCESS_KEY_ID`,
/// `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`, web identity
/// tokens, and the metadata services of containers and machines. Files such as `~/.aws/config` are
/// not read.
///
/// ```no_run
/// # fn main() -> braiddb::Result<()> {
/// use braiddb_object_store::{S3, TargetOptions};
///
/// let target = S3::parse("s3://my-bucket/backups/music")?.open(TargetOptions::new())?;
/// let db = braiddb::Db::open("music.db")?;
/// db.backup(&target)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3 {
    bucket: String,
    prefix: String,
    endpoint: Option<String>,
}

impl S3 {
    /// Parses `s3://BUCKET` or `s3://BUCKET/PREFIX`.
    pub fn parse(url: &str) -> Result<S3> {
        let refused = || Error::InvalidArgument(format!("{url:?} is no place in S3: give s3://BUCKET/PREFIX"));
        let rest = url.strip_prefix("s3://").ok_or_else(refused)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if bucket.is_empty()
            || bucket.contains(['?', '#', '@', ':'])
            || !(prefix.is_empty() || prefix.split('/').all(is_part))
        {
            return Err(refused());
        }
        Ok(S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned(), endpoint: None })
    }

    /// Names the server, such as `https://minio.example:9000`. Without TLS (`http://`), anyone
    /// between can read the backups.
    pub fn endpoint(mut self, url: impl Into<String>) -> S3 {
        self.endpoint = Some(url.into());
        self
    }

    /// Returns the place `NAME` below this one.
    pub fn below(&self, name: &str) -> S3 {
        let prefix = if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) };
        S3 { prefix, ..self.clone() }
    }

    /// Opens the place. Connects with the first request.
    pub fn open(&self, options: TargetOptions) -> Result<ObjectStoreTarget> {
        options.check()?;
        // reqwest is built without aws-lc-rs, and finds ring here. Fails if the program chose one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let retry = RetryConfig { retry_timeout: options.request_time, ..RetryConfig::default() };
        let endpoint = self.endpoint.clone().or_else(|| std::env::var("AWS_ENDPOINT_URL").ok());
        let is_plain = endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        let client = ClientOptions::new()
            .with_timeout(options.attempt_time)
            .with_connect_timeout(CONNECT_TIME.min(options.attempt_time))
            .with_allow_http(is_plain);
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(&self.bucket)
            .with_client_options(client)
            .with_retry(retry)
            // Every server has the deletion of one object; the command for many is younger.
            .with_disable_bulk_delete(true);
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        let shown = format!("s3://{}", self.bucket);
        let store = builder.build().map_err(|e| Error::InvalidArgument(format!("{shown} cannot be used: {e}")))?;
        ObjectStoreTarget::open_as(Arc::new(store), &self.prefix, &shown, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_of_url_returns_bucket_and_prefix() {
        for (url, bucket, prefix) in [
            ("s3://b", "b", ""),
            ("s3://b/", "b", ""),
            ("s3://my.bucket/a", "my.bucket", "a"),
            ("s3://b/a/b c/ü/", "b", "a/b c/ü"),
        ] {
            let place = S3::parse(url).unwrap();
            assert_eq!((place.bucket.as_str(), place.prefix.as_str()), (bucket, prefix), "{url}");
        }
        for url in
            ["", "b/a", "s3:/b", "s3://", "s3:///a", "s3://b//a", "s3://b/a//", "s3://b/../a", "S3://b", "s3://u@b/a"]
        {
            assert!(S3::parse(url).is_err_and(|e| e.is_invalid_argument()), "{url}");
        }
        assert_eq!(S3::parse("s3://b/a").unwrap().below("log"), S3::parse("s3://b/a/log").unwrap());
        assert_eq!(S3::parse("s3://b").unwrap().below("log"), S3::parse("s3://b/log").unwrap());
    }
}
