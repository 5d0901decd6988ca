'use strict';
const cluster = require('cluster');
const http = require('http');

if (cluster.isPrimary) {
  for (let n = 0; n < 2; n++) cluster.fork();
} else {
  http.createServer((request, response) => {
    const answer = () => response.end(`generation=${process.env.SUPERVISORD_GENERATION || 0} pid=${process.pid}\n`);
    if (request.url === '/slow') setTimeout(answer, 300);
    else answer();
  }).listen(8134);
}
