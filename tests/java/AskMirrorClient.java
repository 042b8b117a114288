// What Kafka's own client for mirrored clusters answers, one tab-separated line each.
// Arguments: bootstrap servers, source alias, then groups, and settings as name=value.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

class AskMirrorClient {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", arguments[0]);
        String source = arguments[1];
        List<String> groups = new ArrayList<>();
        for (int i = 2; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            if (setting.length > 1) {
                config.put(setting[0], setting[1]);
            } else {
                groups.add(arguments[i]);
            }
        }
        for (String group : groups) {
            RemoteClusterUtils.translateOffsets(config, source, group, Duration.ofSeconds(30))
                .forEach((place, offset) -> say("offset", group, place.topic(),
                    place.partition(), offset.offset(), offset.metadata()));
        }
        RemoteClusterUtils.upstreamClusters(config).forEach(each -> say("upstream", each));
        say("hops", source, RemoteClusterUtils.replicationHops(config, source));
        say("hops", "nobody", RemoteClusterUtils.replicationHops(config, "nobody"));
        try (MirrorClient client = new MirrorClient(config)) {
            client.heartbeatTopics().forEach(each -> say("heartbeat", each));
            client.checkpointTopics().forEach(each -> say("checkpoint", each));
            client.remoteTopics().forEach(each -> say("remote", each));
            client.remoteTopics(source).forEach(each -> say("remote of " + source, each));
        }
    }

    private static void say(Object... fields) {
        StringBuilder line = new StringBuilder();
        for (Object field : fields) {
            line.append(line.length() == 0 ? "" : "\t").append(field);
        }
        System.out.println(line);
    }
}
