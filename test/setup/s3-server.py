"""
OpenStack Swift with its S3 API (Debian: swift-proxy, swift-account, swift-container, swift-object): a whole object
store in one process, with one device in the folder it is given. Prints the port of the S3 API when that answers and
ends when its standard input does.
"""
import eventlet

eventlet.monkey_patch()

import os
import sys
import threading

import swift.common.utils as utils

folder = sys.argv[1]
conf = os.path.join(folder, "swift.conf")
with open(conf, "w") as file:
    file.write("[swift-hash]\nswift_hash_path_suffix = test\n[storage-policy:0]\nname = one\ndefault = yes\n")
utils.SWIFT_CONF_FILE = conf
utils.HASH_PATH_SUFFIX = b"test"
import swift.common.storage_policy as policies
policies.SWIFT_CONF_FILE = conf
policies.reload_storage_policies()

import eventlet.wsgi
from swift.common.ring import RingBuilder
from swift.common.wsgi import SwiftHttpProtocol, loadapp

eventlet.hubs.use_hub("poll")
eventlet.wsgi.MAX_REQUEST_LINE = 16384


def listen():
    return eventlet.listen(("127.0.0.1", 0), backlog=256)


def write(name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def serve(name, socket, text):
    app = loadapp(write(name, text), global_conf={"log_requests": "no"})
    eventlet.spawn(
        eventlet.wsgi.server, socket, app, protocol=SwiftHttpProtocol, debug=False,
        log=open(os.devnull, "w"), custom_pool=eventlet.GreenPool(256),
    )


os.makedirs(os.path.join(folder, "devices", "d1"), exist_ok=True)
common = f"[DEFAULT]\nswift_dir = {folder}\ndevices = {folder}/devices\nmount_check = false\nlog_level = ERROR\nfallocate_reserve = 0\n"
for service in ("account", "container", "object"):
    socket = listen()
    port = socket.getsockname()[1]
    builder = RingBuilder(4, 1, 0)
    builder.add_dev({"region": 1, "zone": 1, "ip": "127.0.0.1", "port": port, "device": "d1", "weight": 1})
    builder.rebalance()
    builder.get_ring().save(os.path.join(folder, f"{service}.ring.gz"))
    serve(f"{service}.conf", socket, f"{common}[pipeline:main]\npipeline = app\n[app:app]\nuse = egg:swift#{service}\n")

with open(os.path.join(folder, "users")) as file:
    users = file.read()
front = listen()
serve(
    "proxy.conf",
    front,
    f"""[DEFAULT]
swift_dir = {folder}
log_level = ERROR
[pipeline:main]
pipeline = catch_errors gatekeeper cache listing_formats s3api tempauth slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
account_autocreate = true
node_timeout = 60
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
auth_pipeline_check = false
allow_multipart_uploads = true
dns_compliant_bucket_names = true
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
{users}
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
""",
)
print(front.getsockname()[1], flush=True)


original_os = eventlet.patcher.original("os")


# The end of standard input is the end of whoever started this.
def wait():
    while original_os.read(0, 1024):
        pass
    original_os._exit(0)


eventlet.patcher.original("threading").Thread(target=wait, daemon=True).start()
while True:
    eventlet.sleep(3600)
