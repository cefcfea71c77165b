"""Programs that use the public API of deltalog and spark_ext. They are not part of the installed packages."""
