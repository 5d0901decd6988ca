'use strict';
// What is special is the stop. Since Node 19 server.close() closes idle connections at once, and a client that is just sending a
// request on one loses it. So this one closes only the listening socket, says "Connection: close" with each answer from then on, and
// ends when the last client has gone, or after 25 s.
const fs = require('fs');
const http = require('http');
const net = require('net');

let stopping = false;
const server = http.createServer((request, response) => {
  const answer = () => {
    if (stopping) response.setHeader('Connection', 'close');
    response.end(`generation=${process.env.SUPERVISORD_GENERATION || 0} pid=${process.pid}\n`);
  };
  if (request.url === '/slow') setTimeout(answer, 300);
  else answer();
});
server.keepAliveTimeout = 75000; // longer than the clients' own, so that it is they who close

function stop() {
  if (stopping) return;
  stopping = true;
  net.Server.prototype.close.call(server, () => process.exit(0)); // called back when the last connection is gone
  setTimeout(() => server.closeAllConnections(), 25000).unref();
}

process.on('SIGTERM', stop);
process.on('SIGINT', stop);
server.listen({ fd: Number(process.env.LISTEN_FD || 3) }, () => {
  if (process.env.NOTIFY_FD) fs.writeSync(Number(process.env.NOTIFY_FD), '\n');
});
