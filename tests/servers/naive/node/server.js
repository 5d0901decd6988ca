'use strict';
const fs = require('fs');
const http = require('http');

const body = `generation=${process.env.SUPERVISORD_GENERATION}\n`;
const server = http.createServer((request, response) => {
  if (request.url === '/slow') setTimeout(() => response.end(body), 300);
  else response.end(body);
});
process.on('SIGTERM', () => server.close(() => process.exit(0)));
server.listen({ fd: 3 }, () => fs.writeSync(Number(process.env.NOTIFY_FD), '\n'));
