'use strict';
// An ordinary program: it opens a port, and knows nothing of supervisord.
const http = require('http');

http.createServer((request, response) => {
  const answer = () => response.end(`generation=${process.env.SUPERVISORD_GENERATION || 0} pid=${process.pid}\n`);
  if (request.url === '/slow') setTimeout(answer, 300);
  else answer();
}).listen(8135, () => console.log('listening'));
