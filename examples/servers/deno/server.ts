Deno.serve({ port: 8140 }, async (request) => {
  if (new URL(request.url).pathname === "/slow") {
    await new Promise((done) => setTimeout(done, 300));
  }
  return new Response(`generation=${Deno.env.get("SUPERVISORD_GENERATION")}\n`);
});
