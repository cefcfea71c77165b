"""What tests of Unity Catalog's API share."""
