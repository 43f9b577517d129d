"""`campaign serve`: the store as pages for a browser on this host, a running campaign as it goes on.

Reads the store, the journal and the servers' logs; the one thing it writes is a request to stop, as `campaign stop`
does. Every page is rendered here and readable without script; the script only asks for the next rendering."""
