"""Reading: resolves versions, lists their files, and scans these natively."""
