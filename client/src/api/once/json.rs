//! Results that are stored as JSON.

use super::{Once, OnceKey};
use crate::api::guard::Guard;
use crate::wire::error::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;

impl OnceKey {
    /// Returns the value, which is stored as JSON: see [`get_or`](Self::get_or).
    ///
    /// # Errors
    ///
    /// The errors of [`get_or`](Self::get_or); [`Invalid`](Error::Invalid) if the stored value is not a `T`
    /// in JSON, or the `T` of the work cannot be written as JSON. In the second case the work was done,
    /// nothing is stored, and the lock is released.
    ///
    /// # Cancel safety
    ///
    /// As for [`get_or`](Self::get_or).
    pub async fn get_or_json<T: Serialize + DeserializeOwned>(
        &self,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<Once<T>, Error> {
        self.try_get_or_json(async |guard: &Guard| Ok::<_, Error>(work(guard).await)).await
    }

    /// Returns the value, which is stored as JSON, for work that can fail: see
    /// [`try_get_or`](Self::try_get_or).
    ///
    /// # Errors
    ///
    /// The errors of [`get_or_json`](Self::get_or_json) and of the work.
    ///
    /// # Cancel safety
    ///
    /// As for [`get_or`](Self::get_or).
    pub async fn try_get_or_json<T: Serialize + DeserializeOwned, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&Guard) -> Result<T, E>,
    ) -> Result<Once<T>, E> {
        let mut computed = None;
        let work = async |guard: &Guard| {
            let value = work(guard).await?;
            let json = serde_json::to_vec(&value).map_err(|error| not_json(&error))?;
            computed = Some(value);
            Ok::<_, E>(json)
        };
        let Once { value: json, source } = self.try_get_or(work).await?;
        let value = match computed {
            Some(value) => value,
            None => serde_json::from_slice(&json).map_err(|error| not_json(&error))?,
        };
        Ok(Once { value, source })
    }
}

fn not_json(error: &serde_json::Error) -> Error {
    Error::Invalid(format!("the result does not fit its type: {error}"))
}
