// The examples and the programs that measure, with what only they need: whoever imports worker/graceful does not inherit it.
module example.org/supervisord/examples

go 1.26.0

tool github.com/lestrrat-go/server-starter/cmd/start_server

replace example.org/supervisord => ../

require (
	example.org/supervisord v0.0.0-00010101000000-000000000000
	github.com/labstack/echo/v4 v4.13.4
	github.com/lestrrat-go/server-starter v0.0.0-20210101230921-50cd1900b5bc
	github.com/quic-go/quic-go v0.65.0
	golang.org/x/net v0.56.0
	golang.org/x/sys v0.49.0
	google.golang.org/grpc v1.67.1
	google.golang.org/protobuf v1.34.2
)

require (
	github.com/BurntSushi/toml v1.6.0 // indirect
	github.com/cilium/ebpf v0.19.0 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
	github.com/jessevdk/go-flags v1.6.1 // indirect
	github.com/josharian/intern v1.0.0 // indirect
	github.com/labstack/gommon v0.4.2 // indirect
	github.com/mailru/easyjson v0.7.7 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/quic-go/qpack v0.6.0 // indirect
	github.com/rs/dnscache v0.0.0-20230804202142-fc85eb664529 // indirect
	github.com/tsenart/vegeta/v12 v12.12.0 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/fasttemplate v1.2.2 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	golang.org/x/crypto v0.54.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/text v0.40.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20240814211410-ddb44dafa142 // indirect
)
