import { onCLS, onFCP, onINP, onLCP, onTTFB } from "web-vitals";

// src/speed-insights/client/start.ts
/**
* Measures a page in its visitor's browser, by web-vitals, and sends it as one batch when the page is hidden: that is when
* CLS and INP are known. A measurement is sent once; what it would still become after the page was seen again is left out.
*/
const version = "1.0.0";
/** Events of one batch, well below the bytes that one may have. */
const most = 50;
const longestRoute = 200;
const largest = 36e5;
/** Numbers, UUIDs and long hexadecimal words. */
const usualRoute = (path) => path.replace(/\/(\d+|[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}|[\da-f]{16,})(?=\/|$)/gi, "/:id");
const start = ({ endpoint, environment = "production", normalize = usualRoute, respectDoNotTrack = false }) => {
	const { doNotTrack, globalPrivacyControl } = navigator;
	if (respectDoNotTrack && (doNotTrack === "1" || globalPrivacyControl === true)) return { flush: () => {} };
	const routeOf = (path) => normalize(path).slice(0, longestRoute);
	const landing = routeOf(location.pathname);
	const device = matchMedia("(max-width: 767px)").matches ? "mobile" : "desktop";
	const waiting = /* @__PURE__ */ new Map();
	const sent = /* @__PURE__ */ new Set();
	const add = ({ id, name, value, navigationType, navigationURL }) => {
		const soft = navigationType === "soft-navigation";
		if (sent.has(id) || value > largest || soft && name === "TTFB") return;
		waiting.set(id, {
			eventId: id,
			metric: name,
			value,
			timestamp: (/* @__PURE__ */ new Date()).toISOString(),
			route: soft ? routeOf(new URL(navigationURL ?? "", location.href).pathname) : landing,
			device,
			navigationType: soft ? "other" : navigationType.replace("-cache", "")
		});
		if (waiting.size >= most) flush();
	};
	const flush = () => {
		if (waiting.size === 0) return;
		const events = [...waiting.values()];
		for (const id of waiting.keys()) sent.add(id);
		waiting.clear();
		const body = JSON.stringify({
			schemaVersion: 1,
			batchId: crypto.getRandomValues(/* @__PURE__ */ new Uint32Array(3)).join("-"),
			environment,
			sdkVersion: version,
			events
		});
		fetch(endpoint, {
			method: "POST",
			body,
			keepalive: true,
			credentials: "omit"
		}).catch(() => navigator.sendBeacon(endpoint, body));
	};
	for (const on of [
		onTTFB,
		onFCP,
		onLCP,
		onCLS,
		onINP
	]) on(add, { reportSoftNavs: true });
	addEventListener("visibilitychange", () => {
		if (document.visibilityState === "hidden") flush();
	});
	addEventListener("pagehide", flush);
	return { flush };
};

export { start };