"""Programs that use the public API of deltalog and spark_ext. These programs are not part of the installed packages."""
