# As in unicorn.toml: unicorn finds the inherited socket by its address, and closes one that it is not told of.
listen '127.0.0.1:8117'
worker_processes 4
preload_app true # an application that does not load fails the trial
timeout 30

# The first worker that waits for connections says so to supervisord. The master cannot: it does not know.
after_worker_ready do |server, worker|
  server.logger.info("worker=#{worker.nr} ready")
  begin
    IO.for_fd(Integer(ENV['NOTIFY_FD']), 'w', autoclose: false).syswrite("\n") if ENV['NOTIFY_FD']
  rescue Errno::EPIPE
    # another worker has said it already
  end
end
