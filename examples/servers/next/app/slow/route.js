export const dynamic = 'force-dynamic';

export async function GET() {
  await new Promise((done) => setTimeout(done, 300));
  return new Response(`generation=${process.env.SUPERVISORD_GENERATION}\n`);
}
