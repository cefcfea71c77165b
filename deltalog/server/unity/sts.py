"""Assumes AWS roles for locations, by calls of AWS STS."""

from __future__ import annotations

import json
import re
from typing import Any

from deltalog.errors import CallError, StoreError
from deltalog.protocol.paths import canonical_url
from deltalog.server.unity.credentials import AssumeRole
from deltalog.storage.secrets import Secrets
from deltalog.unity import messages

_SESSION = "deltalog"
_READS = ["s3:GetObject", "s3:GetObjectVersion"]
_WRITES = ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
_SPECIAL = re.compile(r"[*?$]")
_BUCKET = re.compile(r"[A-Za-z0-9._-]+")


def policy_for(location: str, operation: messages.CredentialOperation) -> str:
    """The session policy that limits a role to the objects below a location. Raises CallError for a location that is
    not on S3. Pure."""
    scheme, _, rest = canonical_url(location).partition("://")
    bucket, _, prefix = rest.rstrip("/").partition("/")
    # A wildcard in the name of a bucket would give access to other buckets.
    if scheme != "s3" or not _BUCKET.fullmatch(bucket) or (prefix and {"", ".", ".."}.intersection(prefix.split("/"))):
        raise CallError(f"{location} is not a location on S3.")
    escaped = _SPECIAL.sub(lambda found: f"${{{found[0]}}}", prefix)
    objects = f"arn:aws:s3:::{bucket}/{escaped}/*" if prefix else f"arn:aws:s3:::{bucket}/*"
    # Without the slash, the keys of locations whose names begin with that of this one could be listed.
    prefixes = [f"{escaped}/*"] if prefix else ["*"]
    is_write = operation == "READ_WRITE"
    keys = ["kms:Decrypt", *(["kms:GenerateDataKey"] if is_write else [])]
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": [*_READS, *(_WRITES if is_write else [])], "Resource": [objects]},
        {
            "Effect": "Allow",
            "Action": ["s3:ListBucket"],
            "Resource": [f"arn:aws:s3:::{bucket}"],
            "Condition": {"StringLike": {"s3:prefix": prefixes}},
        },
        {
            "Effect": "Allow",
            "Action": keys,
            "Resource": ["*"],
            "Condition": {"StringLike": {"kms:ViaService": "s3.*.amazonaws.com"}},
        },
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))


def assume(rule: AssumeRole, location: str, operation: messages.CredentialOperation) -> tuple[dict[str, str], int]:
    """Assume the role of a rule for a location. Returns the keys, and when they expire in ms since 1970. Raises
    StoreError, CallError. Cost: 1 request to STS."""
    policy = policy_for(location, operation)
    import botocore.config
    import botocore.exceptions
    import botocore.session

    options = {"key": rule.access_key_id, "secret": rule.secret_access_key, "external": rule.external_id}
    try:
        client = botocore.session.get_session().create_client(
            "sts",
            region_name=rule.region,
            endpoint_url=rule.endpoint_url,
            aws_access_key_id=rule.access_key_id,
            aws_secret_access_key=rule.secret_access_key,
            config=botocore.config.Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 3}),
        )
        given = {} if rule.external_id is None else {"ExternalId": rule.external_id}
        found = client.assume_role(
            RoleArn=rule.role_arn,
            RoleSessionName=_SESSION,
            Policy=policy,
            DurationSeconds=rule.duration_seconds,
            **given,
        )["Credentials"]
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError, ValueError) as error:
        reason = Secrets({key: value for key, value in options.items() if value}).reason(error)
        raise StoreError(f"The role for {rule.prefix} cannot be assumed: {reason}", path=rule.prefix) from None
    keys = {
        "s3.access-key-id": found["AccessKeyId"],
        "s3.secret-access-key": found["SecretAccessKey"],
        "s3.session-token": found["SessionToken"],
    }
    return keys, int(found["Expiration"].timestamp() * 1000)
