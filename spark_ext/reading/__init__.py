"""Reading: versions, the files of a version, and native scans of them."""
