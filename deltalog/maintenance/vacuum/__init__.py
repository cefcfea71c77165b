"""VACUUM: finds and deletes files below the table root that no version needs."""
