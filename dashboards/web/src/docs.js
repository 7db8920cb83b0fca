// The API's documentation, from the OpenAPI file of this server.
import './style.css';
import 'swagger-ui-dist/swagger-ui.css';
import SwaggerUI from 'swagger-ui-dist/swagger-ui-es-bundle.js';

SwaggerUI({
  url: document.body.dataset.openapi,
  dom_id: '#swagger-ui',
  deepLinking: true,
  validatorUrl: null, // no request leaves this host
  requestInterceptor: (request) => {
    const token = document.querySelector('meta[name="csrf-token"]')?.content;
    if (token && !['GET', 'HEAD'].includes((request.method ?? 'GET').toUpperCase())) request.headers['X-CSRF-Token'] = token;
    return request;
  },
});
