export const dynamic = 'force-dynamic';

export function GET() {
  return new Response(`generation=${process.env.SUPERVISORD_GENERATION}\n`);
}
