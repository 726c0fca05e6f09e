/** What makes the first project, as an example to start from. */
export const firstManifest = (org: string): string => `version: 1
organization: ${org}
projects:
  - name: Shop
    slug: shop
    runtimeClass: always-on
    caches: [{ name: sessions, region: local }]`
