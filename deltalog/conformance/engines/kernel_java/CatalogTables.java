package deltalog.conformance.kernel;

import io.delta.kernel.CommitRange;
import io.delta.kernel.Snapshot;
import io.delta.kernel.defaults.engine.DefaultEngine;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.hook.PostCommitHook.PostCommitHookType;
import io.delta.kernel.types.StructType;
import io.delta.kernel.unitycatalog.UCCatalogManagedClient;
import io.delta.kernel.unitycatalog.UCTableIdentifier;
import io.delta.storage.commit.TableIdentifier;
import io.delta.storage.commit.actions.AbstractProtocol;
import io.delta.storage.commit.uccommitcoordinator.UCDeltaModels.StagingTableInfo;
import io.delta.storage.commit.uccommitcoordinator.UCDeltaModels.TableInfo;
import io.delta.storage.commit.uccommitcoordinator.UCDeltaTokenBasedRestClient;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;

/** Tables of a Unity Catalog, through the kernel's module for it. Their names are {@code catalog.schema.table}. */
final class CatalogTables implements Tables {
    private final UCDeltaTokenBasedRestClient client;
    private final UCCatalogManagedClient catalog;

    /** {@code url} ends with {@code /api/2.1/unity-catalog}. */
    CatalogTables(String url, String token) {
        int end = url.indexOf("/api/");
        Map<String, String> settings = new HashMap<>();
        settings.put("uri", end < 0 ? url : url.substring(0, end));
        settings.put("auth.type", "static");
        // The client demands a token, also of a server that asks for none.
        settings.put("auth.token", token == null ? "none" : token);
        settings.put("appVersions.Kernel", io.delta.kernel.Meta.KERNEL_VERSION);
        client = new UCDeltaTokenBasedRestClient(settings, null);
        catalog = new UCCatalogManagedClient(client);
    }

    @Override
    public Table open(String name) throws Exception {
        TableInfo found = client.loadTable(identifier(name));
        return new CatalogTable(
                name, found.getTableId().toString(), found.getLocation(), engine(found.getStorageProperties()));
    }

    @Override
    public void create(String name, StructType schema, List<String> partitionBy, Map<String, String> properties)
            throws Exception {
        StagingTableInfo staged = client.createStagingTable(identifier(name));
        Map<String, String> wanted = required(staged);
        wanted.putAll(properties);
        Tables.commitNew(
                catalog.buildCreateTableTransaction(
                        staged.getTableId().toString(), staged.getLocation(), schema, ENGINE_INFO, kernelName(name)),
                engine(staged.getStorageProperties()),
                partitionBy,
                wanted);
    }

    /** The properties by which a connector sets what the server requires. */
    private static Map<String, String> required(StagingTableInfo staged) {
        Map<String, String> wanted = new HashMap<>();
        AbstractProtocol protocol = staged.getRequiredProtocol();
        if (protocol != null) {
            Set<String> features = new HashSet<>();
            features.addAll(protocol.getReaderFeatures() == null ? Set.of() : protocol.getReaderFeatures());
            features.addAll(protocol.getWriterFeatures() == null ? Set.of() : protocol.getWriterFeatures());
            features.forEach(feature -> wanted.put("delta.feature." + feature, "supported"));
            if (features.contains("inCommitTimestamp")) {
                wanted.put("delta.enableInCommitTimestamps", "true");
            }
        }
        if (staged.getRequiredProperties() != null) {
            wanted.putAll(staged.getRequiredProperties());
        }
        return wanted;
    }

    private static Engine engine(Map<String, String> storage) {
        Configuration settings = new Configuration();
        if (storage != null) {
            storage.forEach(settings::set);
        }
        return DefaultEngine.create(settings);
    }

    private static String[] parts(String name) {
        String[] parts = name.split("\\.");
        if (parts.length != 3) {
            throw new IllegalArgumentException("the name of the table is " + name + ", not catalog.schema.table");
        }
        return parts;
    }

    private static TableIdentifier identifier(String name) {
        String[] parts = parts(name);
        return new TableIdentifier(new String[] {parts[0], parts[1]}, parts[2]);
    }

    private static UCTableIdentifier kernelName(String name) {
        String[] parts = parts(name);
        return new UCTableIdentifier(parts[0], parts[1], parts[2]);
    }

    private final class CatalogTable implements Table {
        private final String name;
        private final String id;
        private final String location;
        private final Engine engine;

        CatalogTable(String name, String id, String location, Engine engine) {
            this.name = name;
            this.id = id;
            this.location = location;
            this.engine = engine;
        }

        @Override
        public Engine engine() {
            return engine;
        }

        @Override
        public Snapshot load(Long version, Long timestampMs) {
            return catalog.loadSnapshot(
                    engine,
                    id,
                    location,
                    kernelName(name),
                    Optional.ofNullable(version),
                    Optional.ofNullable(timestampMs));
        }

        @Override
        public CommitRange range(Long fromVersion, Long fromMs, Long toVersion, Long toMs) {
            Long from = fromVersion == null && fromMs == null ? Long.valueOf(0) : fromVersion;
            return catalog.loadCommitRange(
                    engine,
                    id,
                    location,
                    kernelName(name),
                    Optional.ofNullable(from),
                    Optional.ofNullable(fromMs),
                    Optional.ofNullable(toVersion),
                    Optional.ofNullable(toMs));
        }

        @Override
        public Snapshot publish(Snapshot snapshot) throws Exception {
            return snapshot.publish(engine);
        }

        @Override
        public boolean takes(PostCommitHookType kind) {
            // The others load the table by its path, where an unpublished commit is not to be found.
            return kind == PostCommitHookType.CHECKSUM_SIMPLE;
        }
    }
}
