/** Where the dashboard and the API are, as the page's base says: a proxy may serve both below a path of its own. */

/** Path of the dashboard, with a slash at both ends. */
export const appPath = new URL(document.baseURI).pathname
/** The control plane's address, without a slash at the end. */
export const apiUrl = new URL("..", document.baseURI).href.replace(/\/$/, "")

/** To sign in, and back to where one is: a path as the control plane knows it, whatever a proxy puts before. */
export const signIn = (): void => {
  const root = new URL("..", document.baseURI).pathname
  const here = `/${location.pathname.slice(root.length)}${location.search}`
  location.assign(`${apiUrl}/sign-in?next=${encodeURIComponent(here)}`)
}
