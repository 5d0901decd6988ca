'use strict';
// For programs that call listen(port) and cannot be changed: node --require ./inherit.js app.js
//
// listen() on the address of a listener of supervisord takes the inherited socket instead. close(), also of a program's own handler of
// TERM, closes only the listening socket: since Node 19 it would close idle connections at once, and a client that is just sending a
// request on one loses it. From then on each answer says "Connection: close". A program without a handler of TERM gets one.
const http = require('http');
const net = require('net');

const fds = {}; // by port, or by the path of a unix socket
for (const listener of (process.env.SERVER_STARTER_PORT || '').split(';').filter(Boolean)) {
  const [address, fd] = listener.split('=');
  fds[address.startsWith('/') ? address : address.split(':').pop()] = Number(fd);
}

let stopping = false;
const servers = new Set();
const unanswered = new Set();
const { listen, close } = net.Server.prototype;

net.Server.prototype.listen = function (first, ...rest) {
  const { port, path } = first !== null && typeof first === 'object' ? first : { port: first };
  const fd = fds[path || port];
  if (fd === undefined) return listen.call(this, first, ...rest);
  if (this instanceof http.Server) this.keepAliveTimeout = 75000; // longer than the clients' own, so that it is they who close
  this.prependListener('request', (request, response) => {
    unanswered.add(response.on('close', () => unanswered.delete(response)));
    if (stopping) response.setHeader('Connection', 'close');
  });
  if (servers.size === 0 && process.listenerCount('SIGTERM') === 0) process.on('SIGTERM', stop);
  servers.add(this);
  return listen.call(this, { fd }, ...rest.filter((argument) => typeof argument === 'function'));
};

http.Server.prototype.close = function (...callback) {
  stopping = true;
  for (const response of unanswered) if (!response.headersSent) response.setHeader('Connection', 'close');
  return close.apply(this, callback); // called back when the last connection is gone
};

function stop() {
  let open = servers.size;
  for (const server of servers) server.close(() => --open || process.exit(0));
  setTimeout(() => process.exit(0), 25000).unref();
}
