"""What a request remembers on the device: pages of keys and values, recurrent states."""
