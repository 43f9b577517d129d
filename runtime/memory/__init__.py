"""What a request remembers on the device: pages of keys and values, recurrent states.

Knows layouts; knows no model that fills them and no request's text."""
