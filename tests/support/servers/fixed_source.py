"""Credentials for tests that have their API server themselves."""

from dataclasses import dataclass

from kube.credentials import Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedSource:
    """Credentials that never change."""

    credentials: Credentials

    async def read(self, *, rejected: bool = False) -> Credentials:
        """See `CredentialSource`."""
        del rejected
        return self.credentials
