"""One device over a library of others: `device.py LIBRARY PORT`. It lives until it is killed."""

import sys
import time


def pysparkplug(port):
    import pysparkplug as psp

    now = psp.get_current_timestamp()
    metric = psp.Metric(timestamp=now, name="level", datatype=psp.DataType.FLOAT, value=1.0)
    node = psp.EdgeNode("plant", "node", [metric])
    node.connect("127.0.0.1", port=port)
    return node


def wrapper(port):
    from mqtt_spb_wrapper import MqttSpbEntityEdgeNode

    node = MqttSpbEntityEdgeNode("plant", "node")
    node.data.set_value("level", 1.0)
    node.connect("127.0.0.1", port)
    node.publish_birth()
    return node


def ebus(port):
    from ebus_sdk import Device, PropertyDatatype

    device = Device("pump", name="Pump", mqtt_cfg={"host": "127.0.0.1", "port": port})
    node = device.add_node_from_dict({"id": "sensors", "name": "Sensors", "type": "sensor"})
    level = node.add_property_from_dict({"id": "level", "name": "Level", "datatype": PropertyDatatype.FLOAT})
    device.start_mqtt_client()
    level.set_value(1.0)
    return device


def ha(port):
    from ha_mqtt_discoverable import DeviceInfo, Settings
    from ha_mqtt_discoverable.sensors import BinarySensor, BinarySensorInfo

    about = DeviceInfo(name="Pump", identifiers="pump")
    info = BinarySensorInfo(name="Running", unique_id="pump-running", device=about)
    settings = Settings(mqtt=Settings.MQTT(host="127.0.0.1", port=port), entity=info, manual_availability=True)
    sensor = BinarySensor(settings)
    sensor.set_availability(True)
    sensor.on()
    return sensor


LIBRARIES = {"pysparkplug": pysparkplug, "wrapper": wrapper, "ebus": ebus, "ha": ha}

if __name__ == "__main__":
    kept = LIBRARIES[sys.argv[1]](int(sys.argv[2]))
    time.sleep(120)
