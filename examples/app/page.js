// The page, without a framework: one card for each of the four.
const escaped = (text) => String(text).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`)

const time = (at) =>
  `<time datetime="${escaped(new Date(at).toISOString())}">${escaped(new Date(at).toUTCString())}</time>`

const card = (title, { ok, message }, text) => `
  <section class="${ok ? "ok" : "waits"}">
    <h2>${title}</h2>
    ${ok ? text : `<p>Not yet: ${escaped(message)}</p>`}
  </section>`

export const page = ({ environment, database, cache, queue, cron }) => `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Example</title>
<style>
  :root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
  body { max-width: 46rem; margin: 3rem auto; padding: 0 1rem }
  h1 { font-size: 1.6rem; margin: 0 }
  header p { opacity: .7; margin: .2rem 0 1.5rem }
  main { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)) }
  section { border: 1px solid color-mix(in srgb, currentColor 18%, transparent); border-radius: .6rem; padding: 1rem 1.2rem }
  h2 { font-size: 1rem; margin: 0 0 .4rem }
  h2::before { content: "●"; margin-right: .5rem; color: #d9822b }
  .ok h2::before { color: #2f9e5b }
  p { margin: 0; overflow-wrap: anywhere }
  b { font-size: 1.6rem; font-variant-numeric: tabular-nums }
  time, small { opacity: .75; font-size: .85rem }
  code { font-size: .85rem }
</style>
<body>
<header>
  <h1>It runs.</h1>
  <p>This is the example app, in the environment ${escaped(environment)}.</p>
</header>
<main>
  ${card("Database", database, `<p><b>${database.visits}</b> visits so far</p>`)}
  ${card("Cache", cache, `<p>${cache.fromCache ? "Kept in the cache since" : "Made just now, and kept for a minute:"}<br>${time(cache.madeAt ?? 0)}</p>`)}
  ${card(
    "Queue",
    queue,
    queue.last
      ? `<p>The last message: <code>${escaped(JSON.stringify(queue.last.body))}</code><br>${time(queue.last.at)}</p>`
      : `<p>No message yet. Send one:<br><code>svc queues publish example greetings '{"from":"me"}'</code></p>`
  )}
  ${card(
    "Cron job",
    cron,
    cron.last
      ? `<p>The last run:<br>${time(cron.last.at)}</p>`
      : `<p>No run yet: it comes every ten minutes, or with<br><code>svc crons trigger example tick</code></p>`
  )}
</main>
`
