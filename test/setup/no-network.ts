/** In the tier without servers, connecting and listening fail and say where such a test belongs. */
import dgram from "node:dgram"
import net from "node:net"

const refuse = (): never => {
  throw new Error(
    "A test that connects or listens is named x.store.test.ts or x.test.ts (CONTRIBUTING.md, Tests)"
  )
}

// Every client and server of Node goes through these, those of fetch, http and tls too.
net.Socket.prototype.connect = refuse
net.Server.prototype.listen = refuse
dgram.Socket.prototype.bind = refuse
