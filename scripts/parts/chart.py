"""Takes out of a rendered chart, or of a ValkeyCluster, what a server without Kubernetes can be started with.

    chart.py chart RENDERED FOLDER            FOLDER/init.sh, the script of the chart's init container
    chart.py cluster MANIFEST FOLDER CRD      FOLDER/node.conf, as the operator writes it; the manifest must fit the CRD
"""

import sys

import jsonschema
import yaml

# What the operator adds to the configuration of each node (v0.5.0, internal/controller/config.go).
OPERATOR = {
    "cluster-allow-replica-migration": "no",
    "cluster-config-file": "/data/nodes.conf",
    "cluster-enabled": "yes",
    "cluster-node-timeout": "2000",
    "cluster-replica-validity-factor": "0",
    "dir": "/data",
    "protected-mode": "no",
    "shutdown-on-sigterm": "failover",
}


def chart(rendered, folder):
    # Kubernetes reads a tab after a value, which the library here refuses; the chart 0.11.0 has one.
    text = open(rendered).read().replace("\t", " ")
    objects = [thing for thing in yaml.safe_load_all(text) if thing]
    maps = {thing["metadata"]["name"]: thing["data"] for thing in objects if thing["kind"] == "ConfigMap"}
    scripts, config = maps["locks-valkey-init-scripts"], maps["locks-valkey-config"]
    [pods] = [thing for thing in objects if thing["kind"] == "StatefulSet"]
    [server] = [it for it in pods["spec"]["template"]["spec"]["containers"] if it["name"] == "locks-valkey"]
    assert server["image"] == "registry.example.net/kvlock:valkey", server["image"]
    assert server["command"] + server["args"] == ["valkey-server", "/data/conf/valkey.conf"], server
    with open(f"{folder}/valkey.conf", "w") as file:
        file.write(config["valkey.conf"])
    with open(f"{folder}/init.sh", "w") as file:
        script = scripts["init.sh"].replace("/usr/local/etc/valkey/valkey.conf", f"{folder}/valkey.conf")
        script = script.replace("/data/conf", f"{folder}/data/conf").replace("/data/init.log", f"{folder}/data/init.log")
        file.write(script)


def closed(schema):
    """The schema of a CRD, with fields that it does not know refused, as a server does with strict validation."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: closed(part) for key, part in schema.items()}
    if "properties" in schema and schema.get("type") == "object":
        schema.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        schema.pop("type", None)
    return schema


def cluster(manifest, folder, crd):
    wanted = yaml.safe_load(open(manifest))
    [version] = [v for v in yaml.safe_load(open(crd))["spec"]["versions"] if v["name"] == wanted["apiVersion"].split("/")[1]]
    jsonschema.validate(wanted["spec"], closed(version["schema"]["openAPIV3Schema"]["properties"]["spec"]))
    assert wanted["spec"]["image"] == "registry.example.net/kvlock:valkey", wanted["spec"]
    with open(f"{folder}/node.conf", "w") as file:
        for config in wanted["spec"]["config"], OPERATOR:
            for name in sorted(config):
                print(name, config[name], file=file)


{"chart": chart, "cluster": cluster}[sys.argv[1]](*sys.argv[2:])
