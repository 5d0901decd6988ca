environment 'production'
bind_to_activated_sockets 'only'
threads 16, 16
# Without this Puma keeps connections, and closes them as it stops, whether a request is on its way or not.
queue_requests false
