module go-activation

go 1.21

require github.com/coreos/go-systemd/v22 v22.5.0
