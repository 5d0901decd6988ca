BODY = "generation=#{ENV['SUPERVISORD_GENERATION'] || 0} pid=#{$$}\n"

run lambda { |env|
  sleep 0.3 if env['PATH_INFO'] == '/slow'
  [200, { 'Content-Type' => 'text/plain', 'Content-Length' => BODY.bytesize.to_s }, [BODY]]
}
