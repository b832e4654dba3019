"""What runs write and reports read: typed values with a version, one file each."""
