"""Programs that use deltalog and spark_ext by their public names. They are not part of the installed packages."""
